#pragma once

// Where the time of some steps goes, on all ranks: a file that chrome://tracing and Perfetto open.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "atoll/comm/world.h"
#include "atoll/metrics/timeline.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// How much another rank's steady clock is ahead of this one's.
struct ClockOffset {
  std::chrono::nanoseconds ahead{0};
  std::chrono::nanoseconds uncertainty{0};  ///< half the round trip that `ahead` was found by
};

/// How much rank 0's clock is ahead of this rank's: the best of some round trips to it, whose
/// answer is taken to have left in the middle (Cristian 1989, "Probabilistic clock
/// synchronization"). Every rank of the world must call it. `now` is this rank's clock.
ClockOffset clock_offset(comm::World& world,
                         const std::function<metrics::Span::Clock::time_point()>& now);

/// Records what a rank does: stages, collectives, and what is noted in timeline(). It costs a span
/// of some hundred bytes each, metrics::Timeline::kMost of them at most.
class Trace {
 public:
  /// Begins. Every rank of the world must make one at the same point, and write() it; world and
  /// state must outlive it. Throws Error on all ranks, naming the path, when rank 0 cannot write
  /// `file`.
  Trace(comm::World& world, TrainState& state, std::filesystem::path file);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  metrics::Timeline& timeline() { return timeline_; }
  /// Rank 0 writes everybody's spans into one file, each rank a process, times in microseconds
  /// since the trace began there. Every rank must call it. Says what became of it in the log: a run
  /// does not end because a disk is full.
  void write();

 private:
  void pass(const parallel::PassEvent& event);
  void call(const comm::RecordedCall& call);
  void write_all(const std::vector<std::int64_t>& facts, const std::string& own);

  comm::World& world_;
  TrainState& state_;
  std::filesystem::path file_;
  metrics::Timeline timeline_;
  ClockOffset clock_;
  metrics::Span::Clock::time_point origin_;                     // by this rank's clock
  metrics::Span::Clock::time_point acquire_, begin_, release_;  // of the pass that is under way
};

}  // namespace atl::train
