#include "atoll/param_server/worker_loop.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::param_server {

WorkerLoop::WorkerLoop(Worker& worker, const WorkerLoopOptions& options, WorkerHooks hooks)
    : worker_(worker),
      options_(options),
      hooks_(std::move(hooks)),
      next_(options.num_slices),
      sums_(options.num_slices) {}

std::optional<std::int64_t> WorkerLoop::position() const {
  std::optional<std::int64_t> lowest;
  for (const auto& [lane, step] : worker_.lanes()) {
    if (!lowest || step < *lowest) lowest = step;
  }
  return lowest;
}

WorkerLoop::Job WorkerLoop::next() {
  if (worker_.ended()) return {Job::What::kEnd, {}};
  if (worker_.take_shall_load()) begin_load();
  if (phase_ == Phase::kLoading) {
    if (!worker_.is_exchanged()) return wait();
    worker_.loaded();
    worker_.cancel();
    phase_ = Phase::kIdle;
  }
  if (!worker_.begun()) return wait();
  if (phase_ == Phase::kReading) {
    if (!worker_.is_exchanged()) return wait();
    worker_.cancel();
    phase_ = Phase::kSaving;
    return {Job::What::kSave, at_};
  }
  if (phase_ == Phase::kIdle && worker_.shall_save()) {
    begin_read();
    return wait();
  }
  ATOLL_CHECK(phase_ != Phase::kSaving, "saved() was not called");
  return options_.consistency == Consistency::kBsp ? next_bsp() : next_each();
}

void WorkerLoop::begin_load() {
  phase_ = Phase::kLoading;
  worker_.begin(
      options_.num_slices,
      {.request = [this](std::uint32_t slice) { return hooks_.state(slice); },
       .accept = [](std::uint32_t /*slice*/,
                    const Message& reply) { return std::holds_alternative<LoadedSlice>(reply); }});
}

void WorkerLoop::begin_read() {
  phase_ = Phase::kReading;
  at_ = {.lane = 0, .step = *worker_.shall_save()};
  worker_.begin(options_.num_slices,
                {.request = [step = at_.step](
                                std::uint32_t slice) { return Read{.slice = slice, .step = step}; },
                 .accept =
                     [this](std::uint32_t /*slice*/, const Message& reply) {
                       const auto* state = std::get_if<State>(&reply);
                       if (state != nullptr) hooks_.take_state(*state);
                       return state != nullptr;
                     }});
}

void WorkerLoop::saved() {
  ATOLL_CHECK(phase_ == Phase::kSaving, "no save was asked for");
  phase_ = Phase::kIdle;
  // With easgd the state that came stands where the worker's own values stood.
  has_values_ = false;
  if (options_.consistency == Consistency::kBsp) values_step_ = -1;
  worker_.saved(at_.step);
}

void WorkerLoop::begin_pull(const LaneAt& at, const Update& update) {
  phase_ = Phase::kPulling;
  at_ = at;
  pulled_slowest_ = at.step;
  const bool averages = options_.consistency == Consistency::kEasgd && has_values_;
  if (averages) pushes_.assign(options_.num_slices, "");
  worker_.begin(
      options_.num_slices,
      {.request =
           [at, update](std::uint32_t slice) {
             return Pull{.slice = slice, .step = at.step, .lane = at.lane, .update = update};
           },
       .accept =
           [this, at, averages](std::uint32_t slice, const Message& reply) {
             const auto* values = std::get_if<Values>(&reply);
             if (values == nullptr || values->step != at.step || values->lane != at.lane) {
               return false;
             }
             next_[slice] = values->next;
             pulled_slowest_ = std::min(pulled_slowest_, values->slowest);
             if (averages) {
               pushes_[slice] = hooks_.average(slice, values->data);
             } else {
               hooks_.take_values(slice, values->data);
             }
             return true;
           }});
}

void WorkerLoop::begin_push() {
  phase_ = Phase::kPushing;
  const PushArgs args = hooks_.push_args ? hooks_.push_args(at_) : PushArgs();
  worker_.begin(options_.num_slices,
                {.request =
                     [this, args](std::uint32_t slice) {
                       const bool averages = options_.consistency == Consistency::kEasgd;
                       Push push{.slice = slice,
                                 .step = averages ? next_[slice] : at_.step,
                                 .lane = at_.lane,
                                 .is_skipped = args.is_skipped,
                                 .lr = args.lr,
                                 .scale = args.scale,
                                 .loss = args.loss,
                                 .data = {}};
                       push.data = averages ? pushes_[slice] : hooks_.gradient(slice);
                       return push;
                     },
                 .accept =
                     [this](std::uint32_t /*slice*/, const Message& reply) {
                       const auto* pushed = std::get_if<Pushed>(&reply);
                       return pushed != nullptr && pushed->lane == at_.lane;
                     }});
}

void WorkerLoop::computed() {
  ATOLL_CHECK(phase_ == Phase::kComputing, "nothing was to be computed");
  phase_ = Phase::kIdle;
  if (!still_has(at_.lane)) return;  // another worker makes this push
  if (options_.consistency == Consistency::kEasgd) {
    worker_.done(at_.lane, at_.step + 1);
    return;
  }
  begin_push();
}

// A lane of this worker that has not pushed for the step that the values here are for.
std::optional<std::int64_t> WorkerLoop::unpushed_lane(std::int64_t step) const {
  for (const auto& [lane, next] : worker_.lanes()) {
    if (next <= step && !pushed_.contains(lane)) return lane;
  }
  return std::nullopt;
}

WorkerLoop::Job WorkerLoop::next_bsp() {
  if (phase_ == Phase::kPulling) {
    if (!worker_.is_exchanged()) return wait();
    finish_pull_bsp();
  }
  if (phase_ == Phase::kPushing) {
    if (!worker_.is_exchanged()) return wait();
    pushed_.insert(at_.lane);
    worker_.cancel();
    phase_ = Phase::kIdle;
  }
  if (phase_ == Phase::kSumming) {
    if (worker_.is_exchanged()) {
      finish_sum();
      return wait();
    }
    if (!unpushed_lane(values_step_)) return wait();
    worker_.cancel();  // a lane was added whose push the sum lacks
    phase_ = Phase::kIdle;
  }
  const std::optional<LaneAt> lane = worker_.next_lane();
  if (!lane) return wait();
  if (lane->step < values_step_) {
    // A lane that another worker had: the values here are made of its pushes up to this step.
    worker_.done(lane->lane, values_step_);
    return next_bsp();
  }
  if (values_step_ < lane->step) {
    pushed_.clear();
    begin_pull(*lane, {});
    return wait();
  }
  if (const std::optional<std::int64_t> open = unpushed_lane(values_step_)) {
    at_ = {*open, values_step_};
    phase_ = Phase::kComputing;
    return {Job::What::kCompute, at_};
  }
  begin_sum();
  return wait();
}

void WorkerLoop::begin_sum() {
  phase_ = Phase::kSumming;
  const std::vector<std::int64_t> lanes(pushed_.begin(), pushed_.end());
  const std::int64_t step = values_step_;
  worker_.begin(options_.num_slices, {.request =
                                          [step, lanes](std::uint32_t slice) {
                                            return AwaitSum{
                                                .slice = slice, .step = step, .lanes = lanes};
                                          },
                                      .accept =
                                          [this, step](std::uint32_t slice, const Message& reply) {
                                            const auto* sum = std::get_if<Sum>(&reply);
                                            if (sum == nullptr || sum->step != step) return false;
                                            sums_[slice] = *sum;
                                            return true;
                                          }});
}

void WorkerLoop::finish_sum() {
  const std::int64_t lane = pushed_.empty() ? 0 : *pushed_.begin();
  std::vector<double> squares;
  for (const Sum& sum : sums_) {
    // Another worker made the update before it was lost, and all slices have it.
    if (sum.squares.empty()) return begin_pull({lane, values_step_ + 1}, {});
    squares.insert(squares.end(), sum.squares.begin(), sum.squares.end());
  }
  update_ = hooks_.decide(values_step_, squares, sums_.front().losses);
  update_.is_given = true;
  decided_step_ = values_step_;
  begin_pull({lane, values_step_ + 1}, update_);
}

// The values of a step are here, so the update before it is made, with all lanes' pushes.
void WorkerLoop::finish_pull_bsp() {
  values_step_ = at_.step;
  worker_.cancel();
  phase_ = Phase::kIdle;
  const auto lanes = worker_.lanes();
  const bool is_first = std::all_of(lanes.begin(), lanes.end(),
                                    [&](const auto& lane) { return lane.second >= at_.step; });
  pushed_.clear();
  for (const auto& [lane, step] : lanes) {
    if (step < at_.step) worker_.done(lane, at_.step);
  }
  const std::int64_t least = *std::min_element(next_.begin(), next_.end());
  if (is_first && least > at_.step) pushed_.insert(at_.lane);
}

WorkerLoop::Job WorkerLoop::next_each() {
  if (phase_ == Phase::kPushing) {
    if (!worker_.is_exchanged() && still_has(at_.lane)) return wait();
    if (worker_.is_exchanged() && options_.consistency != Consistency::kEasgd) {
      worker_.done(at_.lane, at_.step + 1);
    }
    worker_.cancel();
    phase_ = Phase::kIdle;
    if (options_.consistency == Consistency::kEasgd && still_has(at_.lane)) {
      phase_ = Phase::kComputing;
      return {Job::What::kCompute, at_};
    }
  }
  const std::optional<LaneAt> lane = worker_.next_lane();
  if (phase_ == Phase::kPulling) {
    const bool goes_on = lane && lane->lane == at_.lane && lane->step == at_.step;
    if (goes_on && !worker_.is_exchanged()) return wait();
    const bool came = goes_on && worker_.is_exchanged();
    worker_.cancel();
    phase_ = Phase::kIdle;
    if (came) return after_pull();
  }
  if (!lane) return wait();
  if (options_.consistency == Consistency::kEasgd && has_values_ &&
      lane->step % options_.period != 0) {
    at_ = *lane;
    phase_ = Phase::kComputing;
    return {Job::What::kCompute, at_};
  }
  begin_pull(*lane, {});
  return wait();
}

WorkerLoop::Job WorkerLoop::after_pull() {
  last_stale_ = at_.step - pulled_slowest_;
  most_stale_ = std::max(most_stale_, last_stale_);
  if (options_.consistency == Consistency::kEasgd) {
    if (has_values_) {
      begin_push();
      return wait();
    }
    has_values_ = true;
  } else if (const std::int64_t least = *std::min_element(next_.begin(), next_.end());
             least > at_.step) {
    worker_.done(at_.lane, least);  // another worker had made the push before it was lost
    return next_each();
  }
  phase_ = Phase::kComputing;
  return {Job::What::kCompute, at_};
}

}  // namespace atl::param_server
