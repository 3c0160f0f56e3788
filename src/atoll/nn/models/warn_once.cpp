#include "atoll/nn/models/warn_once.h"

#include <mutex>
#include <set>

#include "atoll/base/log.h"

namespace atl::nn {

void warn_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(line).second) log::write(log::Level::kWarning, line);
}

}  // namespace atl::nn
