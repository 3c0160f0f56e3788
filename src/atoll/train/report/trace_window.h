#pragma once

// Which steps of a run are traced.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "atoll/train/config/config.h"
#include "atoll/train/ranks/ranks.h"
#include "atoll/train/report/trace.h"

namespace atl::train {

/// Traces the steps that log.trace asks for, and those that somebody asks for while the run is
/// under way. Every rank has one and calls the same.
class TraceWindow {
 public:
  /// `settings` must outlive this.
  explicit TraceWindow(const LogSettings& settings) : settings_(settings) {}

  /// Where to note what takes time now; null: nowhere.
  metrics::Timeline* timeline() { return trace_ ? &trace_->timeline() : nullptr; }
  /// Asks for a trace of the next steps, after the one that is under way; rank 0 writes it to
  /// `file`, which the others need not know.
  void request(std::int64_t steps, std::filesystem::path file);
  /// Whether a request waits or is being served: another one would take its place.
  bool has_request() const { return wanted_steps_ > 0; }
  /// Begins the trace before its first step and writes it after its last: called between steps,
  /// with the steps that this start of the run has taken. Ranks and state must stay until then.
  void update(const Ranks& ranks, TrainState& state, std::int64_t steps_taken);
  /// The run is over: writes what there is.
  void end(const Ranks& ranks, std::int64_t steps_taken);
  /// Drops what there is; it begins again with other ranks.
  void abandon() { trace_.reset(); }

 private:
  void write();
  void begin_wanted(const Ranks& ranks, TrainState& state, std::int64_t steps_taken);

  const LogSettings& settings_;
  std::optional<Trace> trace_;
  bool is_done_ = false;           // what log.trace asks for
  std::int64_t wanted_steps_ = 0;  // of a request; 0: there is none
  std::filesystem::path wanted_file_;
  bool is_wanted_ = false;     // trace_ is of the request
  std::int64_t began_at_ = 0;  // of the request: steps taken then
};

}  // namespace atl::train
