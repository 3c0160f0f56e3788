#pragma once

#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Islands from which bytes have come lately. While an exchange fills a link, heartbeats queue
/// behind its bytes, so the bytes count as signs of life. Thread safe.
class RecentSenders {
 public:
  void note(IslandId island) {
    const std::lock_guard lock(mutex_);
    islands_.insert(island);
  }
  /// Those noted since the last call, ascending.
  std::vector<IslandId> take() {
    const std::lock_guard lock(mutex_);
    const std::set<IslandId> taken = std::exchange(islands_, {});
    return {taken.begin(), taken.end()};
  }

 private:
  std::mutex mutex_;
  std::set<IslandId> islands_;
};

}  // namespace atl::island
