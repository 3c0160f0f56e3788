#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "atoll/comm/channel.h"
#include "atoll/comm/failure.h"
#include "atoll/comm/gpu_links.h"
#include "atoll/comm/world.h"

namespace atl::comm {

/// What a World is made of.
struct World::State {
  State(std::unique_ptr<Transport> transport, const WorldOptions& the_options);
  ~State();

  /// Throws what an earlier collective failed with, in whichever channel: ranks that missed one
  /// cannot go on together.
  void check_whole();
  /// Whether a collective has failed.
  bool broken() const { return is_broken.load(std::memory_order_acquire); }
  /// Keeps the first failure, and ends what the other channels have under way.
  void fail(Failure what, const Channel& where) noexcept;

  Channel& first() const { return *channels.front(); }
  bool finished() const;
  void abort(const std::string& why) noexcept;

  WorldOptions options;
  MakeGpuLinks make_gpu_links;  // empty: tensors of GPUs go through host memory
  Recorder recorder;
  bool reports = true;
  bool agreed_to_end = false;  // the last agree() failed: no rank needs to be told
  std::mutex mutex;
  std::optional<Failure> failure;      // guarded by mutex
  std::atomic<bool> is_broken{false};  // whether there is a failure
  std::unique_ptr<Group> all;
  std::vector<std::string> opened_names;  // of channels beside the first; the same on all ranks
  std::mutex channels_mutex;              // fail() reads them on any channel's thread
  std::vector<std::unique_ptr<Channel>> channels;  // the first has all ranks
};

}  // namespace atl::comm
