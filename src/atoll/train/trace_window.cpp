#include "atoll/train/trace_window.h"

#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::train {

void TraceWindow::write() {
  trace_->write();
  trace_.reset();
  is_done_ = true;
}

void TraceWindow::update(const Ranks& ranks, TrainState& state, std::int64_t steps_taken) {
  if (settings_.trace.empty() || is_done_) return;
  const std::int64_t traced = steps_taken - settings_.trace_after;
  if (trace_ && traced >= settings_.trace_steps) {
    write();
  } else if (!trace_ && traced >= 0 && traced < settings_.trace_steps) {
    trace_.emplace(ranks.world(), state, settings_.trace);
  }
}

void TraceWindow::end(const Ranks& ranks, std::int64_t steps_taken) {
  if (settings_.trace.empty() || is_done_) return;
  if (trace_) {
    write();
  } else if (ranks.is_lead()) {
    log::warning("no trace was written: the run ended after {}, and log.trace_after is {}",
                 counted(steps_taken, "step"), settings_.trace_after);
  }
}

}  // namespace atl::train
