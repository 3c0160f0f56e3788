// The steps of a run, and what stands between them.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/device/choose_device.h"
#include "atoll/train/nonfinite.h"
#include "atoll/train/trace_request.h"
#include "atoll/train/trainer.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

// A run that meets this many bad steps in a row does not recover by skipping more.
constexpr std::int64_t kMaxSkippedInARow = 10;
// Data of which so many batches in a row have no token with a loss is not what was meant.
constexpr std::int64_t kMostWithoutLoss = 100;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

TrainOutcome Trainer::run() {
  stop_.emplace(/*is_told=*/is_lead());
  try {
    reporter_.announce(*corpus_, state(), ranks(), model_->device());
    reporter_.watch(model_->device());
    reporter_.begin(/*shows_bar=*/is_lead());
    TrainOutcome outcome = servers_ ? loop_with_servers() : loop();
    stop_.reset();
    return outcome;
  } catch (const DeviceLostError& error) {
    reporter_.clear_bar();
    stop_.reset();
    throw DeviceLostError(
        fmt::format("step {}: {}. {}", position_.step + 1, error.what(), what_is_left()));
  } catch (...) {
    reporter_.clear_bar();  // before whoever catches this prints
    stop_.reset();
    throw;
  }
}

// What is in memory is gone with a device, but for a checkpoint that was being written.
std::string Trainer::what_is_left() {
  try {
    if (ranks().is_alone()) saver_.finish(ranks(), trace_.timeline());
  } catch (const Error& error) {
    log::warning("the checkpoint that was being written is lost too: {}", error.what());
  }
  const bool has_checkpoint = saver_.saved_step() >= 0;
  return fmt::format(
      "{}; the same command {}",
      has_checkpoint ? fmt::format("The last checkpoint is {}", saver_.last_checkpoint().string())
                     : "There is no checkpoint yet",
      has_checkpoint ? "goes on from there" : "begins again");
}

TrainOutcome Trainer::loop() {
  TrainOutcome outcome;
  together_step_ = position_.step;
  // A rank that is lost interrupts whatever is under way; what is left of it is then done.
  for (;;) {
    try {
      const Clock::time_point pause = Clock::now();
      trace_.update(ranks(), state(), position_.step - first_step_);
      after_step();
      copy_state();
      reporter_.leave_out(Clock::now() - pause);
      if (is_over()) {
        end(outcome);
        break;
      }
      if (state().is_together()) together_step_ = position_.step;
      take_one_step();
      if (change_wanted_) regroup("");
    } catch (const comm::PeerError& error) {
      if (!regrouping_.is_possible()) throw;
      reporter_.clear_bar();
      regroup(error.what());
      reporter_.begin_again();
    }
  }
  outcome.step = position_.step;
  outcome.checkpoint = saver_.last_checkpoint();
  reporter_.flush();
  return outcome;
}

// What is done after the last step.
void Trainer::end(TrainOutcome& outcome) {
  reporter_.clear_bar();
  saver_.finish(ranks(), trace_.timeline());
  // Whatever becomes of the evaluation. The last exchange of islands moves the model without a
  // step.
  if (saver_.saved_step() != position_.step || rounds_) {
    saver_.save(ranks(), to_save(), trace_.timeline());
  }
  if (rounds_) rounds_->tell_saved();
  // Whoever sends a signal may not wait for an evaluation; the same command makes up for it.
  outcome.signal = stop_->agreed(ranks());
  if (rounds_ && outcome.signal != 0) rounds_->leave("it was stopped");
  if (corpus_->has_held_out() && outcome.signal == 0) {
    outcome.held_out = evaluate_last();
    if (!outcome.held_out) outcome.signal = stop_->agreed(ranks());
    if (outcome.held_out && config_.checkpoint.keep_best > 0) saver_.prune(ranks());
  }
  if (outcome.signal == 0) tell_best();
  if (outcome.signal == 0 && has_finished()) reporter_.finished(position_.step);
  trace_.end(ranks(), position_.step - first_step_);
  if (rounds_) rounds_->stay([this] { return stop_->here() != 0; });
}

bool Trainer::is_over() const {
  if (!state().is_together()) return false;  // it is soon, and a checkpoint needs it
  if (stop_->agreed(ranks()) != 0) return true;
  if (stops_early()) return true;
  return rounds_ ? rounds_->is_over() : position_.step >= config_.train.last_step();
}

// train.stop_after ends this start of a run, and not the run.
bool Trainer::has_finished() const {
  if (rounds_) return rounds_->is_over();
  return stops_early() || position_.step >= config_.train.steps;
}

bool Trainer::stops_early() const {
  return config_.train.early_stop > 0 &&
         position_.held_out.since_lowest >= config_.train.early_stop;
}

// All ranks have the same loss, so all judge alike.
void Trainer::judge(const Evaluation& held_out) {
  position_.held_out.take(position_.step, held_out.loss, config_.checkpoint.keep_best,
                          config_.train.early_stop_delta);
  saver_.spare(position_.held_out.best_steps());
}

// A run that had ended says it again, and records nothing twice.
std::optional<Evaluation> Trainer::evaluate_last() {
  if (evaluated_step_ == position_.step) return last_held_out_;
  std::int64_t is_repeated = 0;
  if (is_lead()) {
    const fs::path log = fs::path(config_.run.dir) / "metrics.jsonl";
    is_repeated = has_evaluation(log, position_.step) ? 1 : 0;
  }
  if (!ranks().is_alone()) {
    ranks().group().broadcast({&is_repeated, {Dtype::kI64, {1}}}, 0);
  }
  const std::optional<Evaluation> held_out = evaluate(is_repeated != 0);
  if (held_out && is_repeated == 0) sample();
  return held_out;
}

// From a checkpoint, which has the whole model whatever layout its ranks have.
void Trainer::sample() {
  if (config_.eval.samples == 0 || stop_->agreed(ranks()) != 0) return;
  saver_.finish(ranks(), trace_.timeline());
  if (saver_.saved_step() != position_.step) saver_.save(ranks(), to_save(), trace_.timeline());
  const metrics::ScopedSpan span(trace_.timeline(), "samples", "evaluation");
  const metrics::ScopedPause pause(observer_, metrics::Pause::kEvaluation);
  // All learn what goes wrong, and none waits for a rank that has gone.
  ranks().world().agree([&] {
    if (!is_lead() || !make_samples_) return;
    reporter_.clear_bar();
    make_samples_(position_.step, saver_.last_checkpoint());
  });
}

void Trainer::tell_best() const {
  if (!is_lead()) return;
  if (position_.without_loss > 0) {
    log::info("{} of {} were skipped: none of their tokens had a loss", position_.without_loss,
              counted(position_.step, "step"));
  }
  const HeldOutHistory& history = position_.held_out;
  if (stops_early()) {
    log::info("stopped early: the held-out loss was not below {:.4f} in {}", history.lowest,
              counted(history.since_lowest, "evaluation"));
  }
  for (const HeldOutHistory::Best& one : history.best) {
    if (!path_exists(saver_.path_of(one.step))) continue;
    log::info("the best held-out loss so far, {:.4f}, is that of step {}, in {}", one.loss,
              one.step, saver_.path_of(one.step).string());
    break;
  }
}

bool Trainer::take_next() {
  schedule_step_ = position_.step;
  steps_left_ = config_.train.last_step() - position_.step;
  if (!rounds_) return true;
  const IslandRounds::Next next = [&] {
    const metrics::ScopedPause pause(observer_, metrics::Pause::kIslands);
    return rounds_->next({.stop = [&] { return stop_->here() != 0; },
                          .wants_change = [&] { return regrouping_.is_wanted(); }});
  }();
  for (IslandRounds::Report& done : rounds_->take_reports()) {
    done.record.step = position_.step;
    reporter_.tell(done.record, done.line);
  }
  change_wanted_ = next.what == IslandRounds::Next::What::kRegroup;
  if (next.what == IslandRounds::Next::What::kEnd) stop_->agree(ranks());
  if (next.what != IslandRounds::Next::What::kStep) return false;
  schedule_step_ = next.schedule_step;
  steps_left_ = next.steps_left;
  if (next.batch != next_batch_) batches_->stop();
  next_batch_ = next.batch;
  return true;
}

void Trainer::take_one_step() {
  if (!take_next()) return;
  step_began_ = Clock::now();
  if (!batches_->has_begun()) batches_->begin(ranks(), next_batch());
  const double lr = schedule_.learning_rate(schedule_step_);
  const double waited = batches_->waited_seconds();
  const StepResult result = step();
  reporter_.waited_for_data(batches_->waited_seconds() - waited);
  reporter_.sent(ranks().data_bytes_sent());
  report_step(result, lr);
  if (!ranks().is_alone() || regrouping_.is_possible()) {
    share_facts(result, seconds(Clock::now() - step_began_));
  } else {
    saver_.all_have_written(saver_.has_written());
    if (const std::int64_t steps = asked_trace_steps()) trace_.request(steps, asked_trace_);
  }
  if (result.taken()) tell_observer(result, position_.step);
  const bool last = steps_left_ <= 0;
  if (!ranks().is_alone() && config_.comm.check_every > 0 &&
      (last || is_due(config_.comm.check_every)) && state().is_together()) {
    compare_replicas();
  }
  if (trace_.timeline() == nullptr) return;
  trace_.timeline()->add({fmt::format("step {}", position_.step), "step",
                          metrics::Span::Track::kMain, step_began_, Clock::now()});
}

void Trainer::report_step(const StepResult& result, double lr) {
  const auto& loads = state().model().expert_loads;
  if (!result.taken()) {
    // What is not finite would be so in every later sum.
    for (const auto& load : loads) load->clear();
    return;
  }
  if (!loads.empty() && reporter_.is_line_due(position_.step, steps_left_)) {
    comm::Group* group = ranks().is_alone() ? nullptr : &ranks().group();
    reporter_.set_experts(take_expert_report(loads, group));
  }
  reporter_.stepped(result, lr, steps_left_, position_);
}

StepResult Trainer::step() {
  progress_ = {};
  const StepOptions options = {.step = position_.step,
                               .seed = static_cast<std::uint64_t>(config_.run.seed),
                               .num_micro_batches = ranks().plan().num_micro_batches(),
                               .lr = schedule_.learning_rate(schedule_step_),
                               .clip = config_.optim.clip,
                               .plan = &ranks().plan(),
                               .progress = regrouping_.is_possible() ? &progress_ : nullptr,
                               .timeline = trace_.timeline()};
  StepResult result =
      take_step(state(), model_->stream(), options, [this] { return batches_->next(); });
  if (!result.taken()) handle_skipped(result);
  step_seconds_ = seconds(Clock::now() - step_began_);
  account(result);
  return result;
}

// The step is done, on all ranks.
void Trainer::account(const StepResult& result) {
  if (rounds_) rounds_->stepped(result, step_seconds_, schedule_.learning_rate(schedule_step_));
  const bool is_nonfinite = !result.nonfinite_samples.empty();
  if (is_nonfinite || result.taken()) skipped_in_a_row_ = is_nonfinite ? skipped_in_a_row_ + 1 : 0;
  if (!result.has_targets) ++position_.without_loss;
  ++position_.step;
  steps_left_ = std::max<std::int64_t>(steps_left_ - 1, 0);
  if (rounds_) ++next_batch_;
  position_.tokens += result.targets;
  if (result.taken()) {
    ++position_.line_steps;
    position_.line_loss += result.loss;
  }
  progress_ = {};
  if (tell_step_) tell_step_(position_.step);
}

void Trainer::tell_observer(const StepResult& result, std::int64_t step) {
  if (observer_ == nullptr) return;
  observer_->stepped({.step = step,
                      .time_s = seconds(Clock::now().time_since_epoch()),
                      .seconds = step_seconds_,
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .tokens = result.targets,
                      .rank_seconds = rank_seconds_});
}

void Trainer::handle_skipped(const StepResult& result) {
  if (!result.nonfinite_samples.empty()) return handle_nonfinite(result);
  handle_without_loss();
}

// Data has such batches now and then; where it has nothing else, somebody has made a mistake.
void Trainer::handle_without_loss() {
  const std::int64_t step = position_.step + 1;
  reporter_.record({.step = step, .values = {{"steps_without_loss", position_.without_loss + 1}}});
  const std::string what = fmt::format(
      "none of the tokens of {} ({}{}) has a loss", counted(config_.train.batch_size, "sequence"),
      batches_->samples().describe(next_batch() * config_.train.batch_size),
      config_.train.batch_size > 1 ? ", ..." : "");
  const std::int64_t ahead = std::min(kMostWithoutLoss, config_.train.last_step() - position_.step);
  const bool has_learned = position_.without_loss < position_.step;
  if (has_loss_within(ahead) || (has_learned && ahead < kMostWithoutLoss)) {
    if (is_lead() && position_.without_loss == 0) {
      log::warning(
          "step {}: {}; the step is skipped, and no parameter changes. Step lines count "
          "such steps",
          step, what);
    }
    return;
  }
  save_before_error();
  throw user_error(
      "step {} has nothing to learn from: {}, and so it is in the {} after it; use a larger batch "
      "or context, or data with more completions",
      step, what, counted(ahead - 1, "step"));
}

// Whether any of so many batches from the present one on has a target.
bool Trainer::has_loss_within(std::int64_t num_batches) const {
  data::RowScratch scratch;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    const std::int64_t targets = data::count_step_targets(batches_->samples(), next_batch() + i,
                                                          config_.train.batch_size, scratch);
    if (targets != data::kNoTargets) return true;
  }
  return false;
}

void Trainer::save_before_error() {
  saver_.finish(ranks(), trace_.timeline());
  // With servers the optimizer's state is there, and what is here is older.
  if (position_.step > 0 && saver_.saved_step() != position_.step && !servers_) {
    saver_.save(ranks(), to_save(), trace_.timeline());
  }
}

void Trainer::handle_nonfinite(const StepResult& result) {
  tell_observer(result, position_.step + 1);
  // Where in the text they are takes a line each: that is for the log.
  const NonfiniteSamples samples = name_nonfinite(batches_->samples(), result);
  const std::int64_t step = position_.step + 1;
  reporter_.record(
      {.step = step,
       .values = {{"nonfinite", std::int64_t{1}}, {"nonfinite_samples", samples.places}}});
  const std::string what =
      fmt::format("step {}: loss {}, grad_norm {}", step, result.loss, result.grad_norm);
  const std::string where = fmt::format("{}; {} says where in the text they are", samples.first,
                                        (fs::path(config_.run.dir) / "metrics.jsonl").string());
  const bool skips = config_.train.on_nonfinite == "skip";
  if (skips && skipped_in_a_row_ + 1 < kMaxSkippedInARow) {
    if (is_lead()) {
      log::warning("{}; the step is skipped, no parameter changed. {}", what, where);
    }
    return;
  }
  save_before_error();
  const std::int64_t saved = saver_.saved_step();
  throw make_error(ErrorKind::kNumeric, "{}{}. Lower optim.lr{}. No parameter changed; {}. {}",
                   what,
                   skips ? fmt::format(" ({} steps in a row were bad)", kMaxSkippedInARow) : "",
                   skips ? "" : ", or set train.on_nonfinite=skip",
                   saved < 0 ? "there is no checkpoint yet"
                             : fmt::format("the last checkpoint is of step {}", saved),
                   where);
}

// How many steps somebody wants a trace of, of the lead; 0: nobody has asked since.
std::int64_t Trainer::asked_trace_steps() {
  constexpr std::chrono::milliseconds kLookEvery{100};
  const Clock::time_point now = Clock::now();
  if (!is_lead() || trace_.has_request() || now < look_for_request_at_) return 0;
  look_for_request_at_ = now + kLookEvery;
  const std::optional<TraceRequest> request = take_trace_request(config_.run.dir);
  if (!request) return 0;
  asked_trace_ = trace_path(config_.run.dir, request->id);
  return request->steps;
}

// Tells the others how the step went here, and hears how it went there.
void Trainer::share_facts(const StepResult& result, double step_seconds) {
  const double waited = state().store().waited_seconds() + state().runner().waited_seconds();
  const RankFacts mine = {.signal = static_cast<double>(stop_->here()),
                          .save_wanted = stop_->wants_save_here() ? 1.0 : 0.0,
                          .step_seconds = step_seconds,
                          .waited_seconds = waited - waited_before_,
                          .compute_seconds = result.compute_seconds,
                          .change_wanted = is_lead() && regrouping_.is_wanted() ? 1.0 : 0.0,
                          .has_saved = saver_.has_written() ? 1.0 : 0.0,
                          .trace_steps = static_cast<double>(asked_trace_steps())};
  waited_before_ = waited;
  const std::vector<RankFacts> facts = ranks().gather(mine);
  stop_->hear(facts);
  reporter_.heard(position_.step, facts, step_seconds);
  rank_seconds_.clear();
  for (const RankFacts& fact : facts) rank_seconds_.push_back(fact.compute_seconds);
  change_wanted_ = facts.front().change_wanted != 0;
  if (facts.front().trace_steps > 0) {
    trace_.request(static_cast<std::int64_t>(facts.front().trace_steps), asked_trace_);
  }
  bool all_have_written = true;
  for (const RankFacts& fact : facts) all_have_written &= fact.has_saved != 0;
  saver_.all_have_written(all_have_written);
  if (ranks().balance(facts)) batches_->begin(ranks(), next_batch());
}

// Ranks that hold the same parameters must hold the same bits: memory, links and our own code are
// all that could change them.
void Trainer::compare_replicas() {
  const std::vector<int> differing = replicas_that_differ(state());
  if (differing.empty()) return;
  throw make_error(
      ErrorKind::kDamaged,
      "step {}: the parameters of rank {} are not those of rank {}; memory or a link "
      "is faulty there. Start again from the last checkpoint ({}), without that rank",
      position_.step, differing[1], differing[0],
      saver_.saved_step() < 0 ? "there is none yet" : saver_.last_checkpoint().string());
}

// Whether something that is done every so many steps is due after this step: also where it was due
// after an earlier one, but ranks have not had the same values since.
bool Trainer::is_due(std::int64_t every) const {
  const std::int64_t before = std::min(together_step_, position_.step - 1);
  return every > 0 && position_.step > 0 && position_.step / every > before / every;
}

// What is due after a step, and was not done yet: a rank lost meanwhile does not change it.
void Trainer::after_step() {
  const std::int64_t step = position_.step;
  if (!state().is_together()) return;
  if (step >= config_.train.last_step() && !rounds_) return;  // the end has its own
  if (is_due(config_.eval.every) && corpus_->has_held_out() && evaluated_step_ != step &&
      stop_->agreed(ranks()) == 0 && step > first_step_) {
    last_held_out_ = evaluate(/*is_repeated=*/false);
    evaluated_step_ = step;
    sample();
  }
  const bool is_best = config_.checkpoint.keep_best > 0 && position_.held_out.is_best(step);
  saver_.finish_if_written(ranks(), trace_.timeline());
  const bool is_asked = stop_->take_save(ranks());
  if (!(is_best || is_asked || is_due(config_.checkpoint.every)) || saver_.has(step)) return;
  saver_.save_in_passing(ranks(), to_save(), trace_.timeline());
}

std::optional<Evaluation> Trainer::evaluate(bool is_repeated) {
  const metrics::ScopedSpan span(trace_.timeline(), "evaluate", "evaluation");
  const metrics::ScopedPause pause(observer_, metrics::Pause::kEvaluation);
  const std::optional<HeldOut> held_out =
      evaluate_held_out(config_, *corpus_, *model_, [this] { return stop_->agree(ranks()) != 0; });
  if (!held_out) return std::nullopt;
  reporter_.evaluated(position_.step, *held_out, is_repeated);
  judge(held_out->whole);
  return held_out->whole;
}

Saver::Source Trainer::to_save() const {
  return {.state = state(),
          .position = position_,
          .carried = model_->carried(),
          .base = model_->base(),
          .extra = rounds_ ? rounds_->saved() : ExtraPart()};
}

}  // namespace atl::train
