#include "atoll/comm/channel/shared_state.h"

namespace atl::comm {

void SharedState::check_whole() {
  if (!broken()) return;
  const std::lock_guard lock(mutex);
  if (failure) failure->raise();
}

}  // namespace atl::comm
