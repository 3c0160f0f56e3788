#include "atoll/train/loop/sync_data_parallel.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/train/loop/skipped_steps.h"

namespace atl::train {

namespace {

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Ranks that hold the same parameters must hold the same bits: memory, links and our own code are
// all that could change them.
void compare_replicas(const TrainRun& run) {
  const std::vector<int> differing = replicas_that_differ(run.state());
  if (differing.empty()) return;
  throw make_error(
      ErrorKind::kDamaged,
      "step {}: the parameters of rank {} are not those of rank {}; memory or a link "
      "is faulty there. Start again from the last checkpoint ({}), without that rank",
      run.position.step, differing[1], differing[0],
      run.saver.saved_step() < 0 ? "there is none yet" : run.saver.last_checkpoint().string());
}

}  // namespace

void DataParallelSync::open(const std::filesystem::path& /*checkpoint*/) {
  if (run_.regrouping.is_possible() && run_.config.parallel.has_parts()) {
    copies_.emplace(run_.state(), run_.ranks());
  }
}

void DataParallelSync::begin() {
  together_step_ = run_.position.step;
}

// Returns whether `action` was done. A rank that is lost interrupts it; those that are left then
// regroup.
bool DataParallelSync::unless_lost(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const comm::PeerError& error) {
    if (!run_.regrouping.is_possible()) throw;
    run_.reporter.clear_bar();
    regroup(error.what());
    run_.reporter.begin_again();
    return false;
  }
}

// ---- the next step ----

std::optional<Turn> DataParallelSync::next() {
  std::optional<Turn> turn;
  for (bool over = false; !turn && !over;) {
    unless_lost([&] {
      do_what_is_due();
      over = is_over();
      if (over) return;
      if (run_.state().is_together()) together_step_ = run_.position.step;
      turn = choose();
      if (change_wanted_) regroup("");
    });
  }
  return turn;
}

std::optional<Turn> DataParallelSync::choose() {
  const std::int64_t step = run_.position.step;
  const std::int64_t left = run_.config.train.last_step() - step - 1;
  return Turn{
      .step = step + 1, .schedule_step = step, .steps_left = std::max<std::int64_t>(left, 0)};
}

bool DataParallelSync::is_over() const {
  if (!run_.state().is_together()) return false;  // it is soon, and a checkpoint needs it
  if (run_.stop->agreed(run_.ranks()) != 0) return true;
  return evaluations_.stops_early() || has_last_step();
}

bool DataParallelSync::has_last_step() const {
  return run_.position.step >= run_.config.train.last_step();
}

// train.stop_after ends this start of a run, and not the run.
bool DataParallelSync::has_finished() const {
  return evaluations_.stops_early() || run_.position.step >= run_.config.train.steps;
}

bool DataParallelSync::is_left_to_end() const {
  return has_last_step();
}

// ---- a step ----

std::optional<StepResult> DataParallelSync::step(const Turn& turn) {
  turn_ = turn;
  std::optional<StepResult> result;
  unless_lost([&] { result = train(); });
  return result;
}

StepResult DataParallelSync::train() {
  step_began_ = Clock::now();
  const auto waited_for_data = [&] { return run_.batches ? run_.batches->waited_seconds() : 0.0; };
  if (run_.batches && !run_.batches->has_begun()) run_.batches->begin(run_.ranks(), run_.batch());
  const double waited = waited_for_data();
  const std::function<Batch()> next = run_.step_source != nullptr
                                          ? run_.step_source->begin_step(run_)
                                          : [this] { return run_.batches->next(); };
  progress_ = {};
  const StepOptions options = {.step = run_.position.step,
                               .seed = static_cast<std::uint64_t>(run_.config.run.seed),
                               .num_micro_batches = run_.ranks().plan().num_micro_batches(),
                               .lr = learning_rate(),
                               .clip = run_.config.optim.clip,
                               .plan = &run_.ranks().plan(),
                               .row_stable = run_.step_source != nullptr,
                               .progress = run_.regrouping.is_possible() ? &progress_ : nullptr,
                               .timeline = run_.trace.timeline()};
  StepResult result = take_step(run_.state(), run_.model->stream(), options, next);
  if (!result.taken()) handle_skipped(run_, result);
  if (run_.step_source != nullptr) run_.step_source->end_step(run_, result);
  run_.step_seconds = seconds(Clock::now() - step_began_);
  account(result);
  run_.reporter.waited_for_data(waited_for_data() - waited);
  run_.reporter.sent(run_.ranks().data_bytes_sent());
  return result;
}

// The step is done, on all ranks.
void DataParallelSync::account(const StepResult& result) {
  stepped(result);
  progress_ = {};
  train::account(run_, result, run_.position.step + 1);
}

void DataParallelSync::after(const StepResult& result) {
  unless_lost([&] {
    telemetry_.report(result, learning_rate(), turn_.steps_left);
    const bool is_alone = run_.ranks().is_alone();
    if (!is_alone || run_.regrouping.is_possible()) {
      change_wanted_ = telemetry_.share(result, seconds(Clock::now() - step_began_));
    } else {
      telemetry_.keep();
    }
    if (result.taken()) tell_observer(run_, result, run_.position.step);
    const std::int64_t check_every = run_.config.comm.check_every;
    const bool last = turn_.steps_left <= 0;
    if (!is_alone && check_every > 0 && (last || is_due(check_every)) &&
        run_.state().is_together()) {
      compare_replicas(run_);
    }
    if (metrics::Timeline* timeline = run_.trace.timeline()) {
      timeline->add({fmt::format("step {}", run_.position.step), "step",
                     metrics::Span::Track::kMain, step_began_, Clock::now()});
    }
    if (change_wanted_) regroup("");
  });
}

// ---- between two steps ----

void DataParallelSync::do_what_is_due() {
  const Clock::time_point pause = Clock::now();
  run_.trace.update(run_.ranks(), run_.state(), run_.position.step - run_.first_step);
  evaluate_and_save();
  copy_state();
  run_.reporter.leave_out(Clock::now() - pause);
}

// Whether something that is done every so many steps is due after this step: also where it was due
// after an earlier one, but ranks have not had the same values since.
bool DataParallelSync::is_due(std::int64_t every) const {
  const std::int64_t step = run_.position.step;
  const std::int64_t before = std::min(together_step_, step - 1);
  return every > 0 && step > 0 && step / every > before / every;
}

// What is due after a step, and was not done yet: a rank lost meanwhile does not change it.
void DataParallelSync::evaluate_and_save() {
  const std::int64_t step = run_.position.step;
  if (!run_.state().is_together() || is_left_to_end()) return;
  if (is_due(run_.config.eval.every) && run_.corpus->has_held_out() &&
      run_.evaluated_step != step && run_.stop->agreed(run_.ranks()) == 0 &&
      step > run_.first_step) {
    evaluations_.evaluate_in_passing();
  }
  const CheckpointSettings& checkpoint = run_.config.checkpoint;
  const bool is_best = checkpoint.keep_best > 0 && run_.position.held_out.is_best(step);
  run_.saver.finish_if_written(run_.ranks(), run_.trace.timeline());
  const bool is_asked = run_.stop->take_save(run_.ranks());
  if (!(is_best || is_asked || is_due(checkpoint.every)) || run_.saver.has(step)) return;
  run_.saver.save_in_passing(run_.ranks(), run_.to_save(), run_.trace.timeline());
}

// ---- the end ----

TrainOutcome DataParallelSync::end() {
  TrainOutcome outcome;
  const auto finishes = [&] { return unless_lost([&] { finish(outcome); }); };
  while (!finishes()) {
    while (!unless_lost([&] { do_what_is_due(); })) continue;
  }
  outcome.step = run_.position.step;
  outcome.checkpoint = run_.saver.last_checkpoint();
  run_.reporter.flush();
  return outcome;
}

// What is done after the last step.
void DataParallelSync::finish(TrainOutcome& outcome) {
  Ranks& ranks = run_.ranks();
  metrics::Timeline* timeline = run_.trace.timeline();
  run_.reporter.clear_bar();
  run_.saver.finish(ranks, timeline);
  // Whatever becomes of the evaluation.
  if (run_.saver.saved_step() != run_.position.step || moves_without_step()) {
    run_.saver.save(ranks, run_.to_save(), timeline);
  }
  saved_last();
  // Whoever sends a signal may not wait for an evaluation; the same command makes up for it.
  outcome.signal = run_.stop->agreed(ranks);
  if (outcome.signal != 0) stopped();
  if (run_.corpus->has_held_out() && outcome.signal == 0) {
    outcome.held_out = evaluations_.evaluate_last();
    if (!outcome.held_out) outcome.signal = run_.stop->agreed(ranks);
    if (outcome.held_out && run_.config.checkpoint.keep_best > 0) run_.saver.prune(ranks);
  }
  if (outcome.signal == 0) evaluations_.tell_best();
  if (outcome.signal == 0 && has_finished()) run_.reporter.finished(run_.position.step);
  run_.trace.end(ranks, run_.position.step - run_.first_step);
  stay();
}

}  // namespace atl::train
