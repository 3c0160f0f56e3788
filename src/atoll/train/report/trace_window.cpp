#include "atoll/train/report/trace_window.h"

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::train {

void TraceWindow::write() {
  trace_->write();
  trace_.reset();
  if (std::exchange(is_wanted_, false)) {
    wanted_steps_ = 0;
  } else {
    is_done_ = true;
  }
}

void TraceWindow::request(std::int64_t steps, std::filesystem::path file) {
  wanted_steps_ = steps;
  wanted_file_ = std::move(file);
}

// A file that cannot be written is told, on all ranks alike, and ends no run.
void TraceWindow::begin_wanted(const Ranks& ranks, TrainState& state, std::int64_t steps_taken) {
  try {
    trace_.emplace(ranks.world(), state, wanted_file_);
    is_wanted_ = true;
    began_at_ = steps_taken;
  } catch (const comm::PeerError&) {
    throw;
  } catch (const Error& error) {
    wanted_steps_ = 0;
    if (ranks.is_lead()) log::warning("no trace: {}", error.what());
  }
}

void TraceWindow::update(const Ranks& ranks, TrainState& state, std::int64_t steps_taken) {
  if (trace_ && is_wanted_ && steps_taken - began_at_ >= wanted_steps_) write();
  if (!settings_.trace.empty() && !is_done_ && !(trace_ && is_wanted_)) {
    const std::int64_t traced = steps_taken - settings_.trace_after;
    if (trace_ && traced >= settings_.trace_steps) {
      write();
    } else if (!trace_ && traced >= 0 && traced < settings_.trace_steps) {
      trace_.emplace(ranks.world(), state, settings_.trace);
      is_wanted_ = false;
    }
  }
  if (!trace_ && wanted_steps_ > 0) begin_wanted(ranks, state, steps_taken);
}

void TraceWindow::end(const Ranks& ranks, std::int64_t steps_taken) {
  if (trace_) return write();
  if (settings_.trace.empty() || is_done_) return;
  if (ranks.is_lead()) {
    log::warning("no trace was written: the run ended after {}, and log.trace_after is {}",
                 counted(steps_taken, "step"), settings_.trace_after);
  }
}

}  // namespace atl::train
