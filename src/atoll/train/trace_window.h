#pragma once

// Which steps of a run are traced.

#include <cstdint>
#include <optional>

#include "atoll/train/config.h"
#include "atoll/train/ranks.h"
#include "atoll/train/trace.h"

namespace atl::train {

/// Traces the steps that log.trace asks for. Every rank has one and calls the same.
class TraceWindow {
 public:
  /// `settings` must outlive this.
  explicit TraceWindow(const LogSettings& settings) : settings_(settings) {}

  /// Where to note what takes time now; null: nowhere.
  metrics::Timeline* timeline() { return trace_ ? &trace_->timeline() : nullptr; }
  /// Begins the trace before its first step and writes it after its last: called between steps,
  /// with the steps that this start of the run has taken. Ranks and state must stay until then.
  void update(const Ranks& ranks, TrainState& state, std::int64_t steps_taken);
  /// The run is over: writes what there is.
  void end(const Ranks& ranks, std::int64_t steps_taken);
  /// Drops what there is; it begins again with other ranks.
  void abandon() { trace_.reset(); }

 private:
  void write();

  const LogSettings& settings_;
  std::optional<Trace> trace_;
  bool is_done_ = false;
};

}  // namespace atl::train
