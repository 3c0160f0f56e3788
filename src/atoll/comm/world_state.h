#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "atoll/comm/failure.h"
#include "atoll/comm/worker.h"
#include "atoll/comm/world.h"

namespace atl::comm {

/// What a World is made of.
struct World::State {
  State(std::unique_ptr<Transport> a_transport, const WorldOptions& the_options);

  /// Throws what an earlier collective failed with: ranks that missed one cannot go on together.
  void check_whole();
  /// Whether a collective has failed.
  bool broken() const { return is_broken.load(std::memory_order_acquire); }
  /// Of a group of two or more, which the record has as started.
  void carry_out(const Collective& collective, std::uint64_t number);
  void carry_out_queued(const Collective& collective, std::uint64_t number);
  void move_bytes(const Collective& collective);

  std::unique_ptr<Transport> transport;
  WorldOptions options;
  Recorder recorder;
  bool reports = true;
  bool agreed_to_end = false;  // the last agree() failed: no rank needs to be told
  std::mutex mutex;
  std::optional<Failure> failure;      // guarded by mutex
  std::atomic<bool> is_broken{false};  // whether there is a failure
  std::unique_ptr<Group> all;
  Worker worker;  // last: its thread uses the others
};

}  // namespace atl::comm
