#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "atoll/comm/channel/staging.h"
#include "atoll/comm/collective.h"
#include "atoll/comm/failure.h"

namespace atl::comm {

/// A collective in the worker's queue and, later, how it ended. The worker uses it again for a
/// later call once its Work has ended, so that a call allocates nothing.
struct Started {
  Collective collective;
  std::uint64_t number = 0;        ///< in the record
  std::optional<Failure> failure;  ///< may be read once `done`
  std::atomic<std::uint32_t> done{0};
  std::atomic<bool> in_use{false};  ///< a Work speaks of it
  /// What its Work copies to a GPU when it is waited for. The caller's thread alone looks at it.
  std::shared_ptr<StagedExchange> staged;
  Started* next = nullptr;  ///< behind it in the queue

  void wait() { done.wait(0, std::memory_order_acquire); }
};

}  // namespace atl::comm
