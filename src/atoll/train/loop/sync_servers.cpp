#include "atoll/train/loop/sync_servers.h"

#include <algorithm>
#include <csignal>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/train/island/run_identity.h"
#include "atoll/train/loop/skipped_steps.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

std::string identity_of(const TrainRun& run) {
  const island::RunIdentity identity =
      run_identity(run.config, run.settings, run.state().model().config, *run.corpus,
                   /*base_hash=*/"");  // servers train no adapters
  const std::string text =
      identity.run + identity.model + identity.tokenizer + identity.data + identity.settings;
  return to_hex(hash_bytes(text.data(), text.size()));
}

}  // namespace

ServerSync::ServerSync(TrainRun& run) : run_(run) {
  if (run.config.sync.addresses.empty()) {
    throw user_error(
        "sync.mode = ps starts servers and workers with -n N; a worker that is started by itself "
        "needs sync.addresses, where `atoll server` listens");
  }
  if (!run.ranks().is_alone() || run.regrouping.is_possible()) {
    throw user_error(
        "sync.mode = ps: a worker is one rank, and goes on by itself when others are lost; start "
        "each with `atoll train` and a sync.worker of its own");
  }
}

void ServerSync::open(const fs::path& /*checkpoint*/) {
  worker_ = std::make_unique<ServerWorker>(
      ServerWorker::Parts{run_.config, *run_.model, run_.batches->samples(), run_.schedule},
      identity_of(run_), run_.position.step);
}

void ServerSync::join(const std::vector<Hello>& hellos) {
  ATOLL_CHECK(hellos.empty(), "a worker of servers is one rank, and joins no others");
}

void ServerSync::begin() {
  const std::optional<std::int64_t> begun = worker_->begin([this] { return wants_stop(); });
  has_begun_ = begun.has_value();
  if (!begun) return;
  const std::int64_t tokens = run_.config.train.batch_size * run_.config.train.context;
  run_.position.tokens += (*begun - run_.position.step) * tokens;
  run_.first_step = run_.position.step = *begun;
  run_.reporter.begin_again();
}

std::optional<Turn> ServerSync::next() {
  using What = ServerWorker::Turn::What;
  while (has_begun_) {
    step_began_ = Clock::now();
    run_.trace.update(run_.ranks(), run_.state(), run_.position.step - run_.first_step);
    made_ = worker_->turn([this] { return wants_stop(); }, run_.trace.timeline());
    if (made_.what == What::kEnd) break;
    if (made_.what == What::kStep) {
      const std::int64_t left = run_.config.train.steps - made_.step;
      return Turn{.step = made_.step,
                  .schedule_step = made_.step - 1,
                  .steps_left = std::max<std::int64_t>(left, 0)};
    }
    save(made_.step);
  }
  return std::nullopt;
}

// Pushes and pulls of a step overlap those of the next: next() has made it.
std::optional<StepResult> ServerSync::step(const Turn& turn) {
  turn_ = turn;
  if (!made_.result.taken()) handle_skipped(run_, made_.result);
  account(run_, made_.result, turn.step);
  return made_.result;
}

void ServerSync::after(const StepResult& result) {
  telemetry_.report(result, run_.schedule.learning_rate(turn_.schedule_step), turn_.steps_left);
  run_.step_seconds = std::chrono::duration<double>(Clock::now() - step_began_).count();
  if (result.taken()) tell_observer(run_, result, run_.position.step);
  telemetry_.keep();
  const std::string& kind = run_.config.sync.consistency;
  if (kind == "ssp" || kind == "async") {
    run_.reporter.record({.step = run_.position.step, .values = {{"staleness", made_.staleness}}});
  }
  run_.saver.finish_if_written(run_.ranks(), run_.trace.timeline());
  evaluate_in_passing();
}

// The first worker evaluates for all.
void ServerSync::evaluate_in_passing() {
  const std::int64_t every = run_.config.eval.every;
  const bool due = every > 0 && run_.position.step % every == 0;
  if (!due || run_.config.sync.worker != 0 || !run_.corpus->has_held_out()) return;
  if (turn_.steps_left == 0 || wants_stop()) return;  // the end has its own
  const Clock::time_point pause = Clock::now();
  evaluations_.evaluate(/*is_repeated=*/false);
  run_.reporter.leave_out(Clock::now() - pause);
}

// Only the lead is asked: all lanes have come this far, and wait.
void ServerSync::save(std::int64_t step) {
  const Clock::time_point pause = Clock::now();
  run_.position.step = step;
  if (!run_.saver.has(step)) {
    if (step == run_.config.train.steps) {
      run_.saver.save(run_.ranks(), run_.to_save(), run_.trace.timeline());
    } else {
      run_.saver.save_in_passing(run_.ranks(), run_.to_save(), run_.trace.timeline());
    }
  }
  worker_->saved();
  run_.reporter.leave_out(Clock::now() - pause);
}

TrainOutcome ServerSync::end() {
  TrainOutcome outcome;
  const std::int64_t step = run_.position.step;
  run_.reporter.clear_bar();
  run_.saver.finish(run_.ranks(), run_.trace.timeline());
  run_.trace.end(run_.ranks(), step - run_.first_step);
  worker_->finish();
  outcome.signal = run_.stop->here();
  if (const std::string& why = worker_->why_ended(); !why.empty() && outcome.signal == 0) {
    throw make_error(ErrorKind::kPeer, "{}", why);
  }
  // Another worker was asked to stop, and this one ends with it.
  if (step < run_.config.train.steps && outcome.signal == 0) outcome.signal = SIGTERM;
  if (outcome.signal == 0) {
    evaluations_.tell_best();
    run_.reporter.finished(step);
    if (run_.config.sync.worker == 0 && run_.corpus->has_held_out()) {
      const fs::path log = fs::path(run_.config.run.dir) / "metrics.jsonl";
      outcome.held_out = evaluations_.evaluate(has_evaluation(log, step));
    }
  }
  outcome.step = step;
  outcome.checkpoint = run_.saver.last_checkpoint();
  run_.reporter.flush();
  return outcome;
}

}  // namespace atl::train
