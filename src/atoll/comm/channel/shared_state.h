#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "atoll/comm/collectives/gpu_links.h"
#include "atoll/comm/failure.h"
#include "atoll/comm/record/recorder.h"
#include "atoll/comm/world_options.h"

namespace atl::comm {

class Channel;

/// What the channels of one world share.
struct SharedState {
  virtual ~SharedState() = default;

  /// Throws what an earlier collective failed with, in whichever channel: ranks that missed one
  /// cannot go on together.
  void check_whole();
  /// Whether a collective has failed.
  bool broken() const { return is_broken.load(std::memory_order_acquire); }
  /// Keeps the first failure, and ends what the channels other than `where` have under way.
  virtual void fail(Failure what, const Channel& where) noexcept = 0;

  int rank = 0;  ///< this one
  int size = 1;  ///< ranks of the world
  WorldOptions options;
  MakeGpuLinks make_gpu_links;  ///< empty: tensors of GPUs go through host memory
  Recorder recorder;
  std::mutex mutex;
  std::optional<Failure> failure;      ///< guarded by mutex
  std::atomic<bool> is_broken{false};  ///< whether there is a failure
};

}  // namespace atl::comm
