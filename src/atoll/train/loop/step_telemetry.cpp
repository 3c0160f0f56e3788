#include "atoll/train/loop/step_telemetry.h"

#include "atoll/train/report/trace_request.h"

namespace atl::train {

void StepTelemetry::report(const StepResult& result, double lr, std::int64_t steps_left) {
  const auto& loads = run_.state().model().expert_loads;
  if (!result.taken()) {
    // What is not finite would be so in every later sum.
    for (const auto& load : loads) load->clear();
    return;
  }
  if (!loads.empty() && run_.reporter.is_line_due(run_.position.step, steps_left)) {
    comm::Group* group = run_.ranks().is_alone() ? nullptr : &run_.ranks().group();
    run_.reporter.set_experts(take_expert_report(loads, group));
  }
  run_.reporter.stepped(result, lr, steps_left, run_.position);
}

// How many steps somebody wants a trace of, of the lead; 0: nobody has asked since.
std::int64_t StepTelemetry::asked_trace_steps() {
  constexpr std::chrono::milliseconds kLookEvery{100};
  const Clock::time_point now = Clock::now();
  if (!run_.is_lead() || run_.trace.has_request() || now < look_for_request_at_) return 0;
  look_for_request_at_ = now + kLookEvery;
  const std::string& dir = run_.config.run.dir;
  const std::optional<TraceRequest> request = take_trace_request(dir);
  if (!request) return 0;
  asked_trace_ = trace_path(dir, request->id);
  return request->steps;
}

bool StepTelemetry::share(const StepResult& result, double step_seconds) {
  const double waited =
      run_.state().store().waited_seconds() + run_.state().runner().waited_seconds();
  const bool wants_change = run_.is_lead() && run_.regrouping.is_wanted();
  const RankFacts mine = {.signal = static_cast<double>(run_.stop->here()),
                          .save_wanted = run_.stop->wants_save_here() ? 1.0 : 0.0,
                          .step_seconds = step_seconds,
                          .waited_seconds = waited - waited_before_,
                          .compute_seconds = result.compute_seconds,
                          .change_wanted = wants_change ? 1.0 : 0.0,
                          .has_saved = run_.saver.has_written() ? 1.0 : 0.0,
                          .trace_steps = static_cast<double>(asked_trace_steps())};
  waited_before_ = waited;
  const std::vector<RankFacts> facts = run_.ranks().gather(mine);
  run_.stop->hear(facts);
  run_.reporter.heard(run_.position.step, facts, step_seconds);
  run_.rank_seconds.clear();
  for (const RankFacts& fact : facts) run_.rank_seconds.push_back(fact.compute_seconds);
  if (facts.front().trace_steps > 0) {
    run_.trace.request(static_cast<std::int64_t>(facts.front().trace_steps), asked_trace_);
  }
  bool all_have_written = true;
  for (const RankFacts& fact : facts) all_have_written &= fact.has_saved != 0;
  run_.saver.all_have_written(all_have_written);
  if (run_.ranks().balance(facts)) run_.batches->begin(run_.ranks(), run_.batch());
  return facts.front().change_wanted != 0;
}

void StepTelemetry::keep() {
  run_.saver.all_have_written(run_.saver.has_written());
  if (const std::int64_t steps = asked_trace_steps()) run_.trace.request(steps, asked_trace_);
}

void tell_observer(const TrainRun& run, const StepResult& result, std::int64_t step) {
  if (run.observer == nullptr) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  run.observer->stepped({.step = step,
                         .time_s = std::chrono::duration<double>(now).count(),
                         .seconds = run.step_seconds,
                         .loss = result.loss,
                         .grad_norm = result.grad_norm,
                         .tokens = result.targets,
                         .rank_seconds = run.rank_seconds});
}

}  // namespace atl::train
