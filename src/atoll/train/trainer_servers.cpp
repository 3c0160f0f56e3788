// A run with parameter servers: this rank is a worker, and what others do it learns from servers.

#include <algorithm>
#include <csignal>

#include "atoll/base/hash.h"
#include "atoll/base/log.h"
#include "atoll/train/island/run_identity.h"
#include "atoll/train/trainer.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

std::string identity_of(const TrainConfig& config, const Settings& settings,
                        const nn::ModelConfig& model, const PreparedCorpus& corpus) {
  const island::RunIdentity run = run_identity(config, settings, model, corpus);
  const std::string text = run.run + run.model + run.tokenizer + run.data + run.settings;
  return to_hex(hash_bytes(text.data(), text.size()));
}

}  // namespace

void Trainer::check_servers() {
  if (config_.sync.mode != "ps") return;
  if (config_.sync.addresses.empty()) {
    throw user_error(
        "sync.mode = ps starts servers and workers with -n N; a worker that is started by itself "
        "needs sync.addresses, where `atoll server` listens");
  }
  if (!ranks().is_alone() || regrouping_.is_possible()) {
    throw user_error(
        "sync.mode = ps: a worker is one rank, and goes on by itself when others are lost; start "
        "each with `atoll train` and a sync.worker of its own");
  }
}

void Trainer::make_servers() {
  servers_ = std::make_unique<ServerSync>(
      ServerSync::Parts{config_, *model_, batches_->samples(), schedule_},
      identity_of(config_, settings_, state().model().config, *corpus_), position_.step);
}

TrainOutcome Trainer::loop_with_servers() {
  TrainOutcome outcome;
  const auto wants_stop = [this] { return stop_->here() != 0; };
  const std::optional<std::int64_t> begun = servers_->begin(wants_stop);
  if (begun) {
    const std::int64_t tokens = config_.train.batch_size * config_.train.context;
    position_.tokens += (*begun - position_.step) * tokens;
    first_step_ = position_.step = *begun;
    reporter_.begin_again();
  }
  while (begun) {
    step_began_ = Clock::now();
    trace_.update(ranks(), state(), position_.step - first_step_);
    ServerSync::Turn turn = servers_->turn(wants_stop, trace_.timeline());
    if (turn.what == ServerSync::Turn::What::kEnd) break;
    if (turn.what == ServerSync::Turn::What::kStep) {
      account_with_servers(turn);
      continue;
    }
    save_with_servers(turn.step);
  }
  end_with_servers(outcome);
  outcome.step = position_.step;
  outcome.checkpoint = saver_.last_checkpoint();
  reporter_.flush();
  return outcome;
}

void Trainer::account_with_servers(const ServerSync::Turn& turn) {
  const std::int64_t before = position_.step;
  const double lr = schedule_.learning_rate(turn.step - 1);
  if (!turn.result.taken()) handle_skipped(turn.result);
  position_.step = turn.step - 1;  // account() counts one
  steps_left_ = config_.train.steps - position_.step;
  account(turn.result);
  position_.tokens += (turn.step - 1 - before) * turn.result.targets;
  report_step(turn.result, lr);
  step_seconds_ = std::chrono::duration<double>(Clock::now() - step_began_).count();
  if (turn.result.taken()) tell_observer(turn.result, position_.step);
  if (const std::int64_t steps = asked_trace_steps()) trace_.request(steps, asked_trace_);
  const std::string& kind = config_.sync.consistency;
  if (kind == "ssp" || kind == "async") {
    reporter_.record({.step = position_.step, .values = {{"staleness", turn.staleness}}});
  }
  saver_.all_have_written(saver_.has_written());
  saver_.finish_if_written(ranks(), trace_.timeline());
  const bool due = config_.eval.every > 0 && position_.step % config_.eval.every == 0;
  if (!due || config_.sync.worker != 0 || !corpus_->has_held_out()) return;
  if (position_.step == config_.train.steps || stop_->here() != 0) return;  // the end has its own
  const Clock::time_point pause = Clock::now();
  evaluate(/*is_repeated=*/false);
  reporter_.leave_out(Clock::now() - pause);
}

// Only the lead is asked: all lanes have come this far, and wait.
void Trainer::save_with_servers(std::int64_t step) {
  const Clock::time_point pause = Clock::now();
  position_.step = step;
  if (!saver_.has(step)) {
    if (step == config_.train.steps) {
      saver_.save(ranks(), to_save(), trace_.timeline());
    } else {
      saver_.save_in_passing(ranks(), to_save(), trace_.timeline());
    }
  }
  servers_->saved();
  reporter_.leave_out(Clock::now() - pause);
}

void Trainer::end_with_servers(TrainOutcome& outcome) {
  reporter_.clear_bar();
  saver_.finish(ranks(), trace_.timeline());
  trace_.end(ranks(), position_.step - first_step_);
  servers_->finish();
  outcome.signal = stop_->here();
  if (const std::string& why = servers_->why_ended(); !why.empty() && outcome.signal == 0) {
    throw make_error(ErrorKind::kPeer, "{}", why);
  }
  // Another worker was asked to stop, and this one ends with it.
  if (position_.step < config_.train.steps && outcome.signal == 0) outcome.signal = SIGTERM;
  if (outcome.signal == 0) {
    tell_best();
    reporter_.finished(position_.step);
  }
  if (config_.sync.worker != 0 || !corpus_->has_held_out() || outcome.signal != 0) return;
  const fs::path log = fs::path(config_.run.dir) / "metrics.jsonl";
  outcome.held_out = evaluate(has_evaluation(log, position_.step));
}

}  // namespace atl::train
