#include "atoll/train/loop/evaluations.h"

#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"

namespace atl::train {

namespace fs = std::filesystem;

std::optional<Evaluation> Evaluations::evaluate(bool is_repeated) {
  const metrics::ScopedSpan span(run_.trace.timeline(), "evaluate", "evaluation");
  const metrics::ScopedPause pause(run_.observer, metrics::Pause::kEvaluation);
  const std::optional<HeldOut> held_out =
      evaluate_held_out(run_.config, *run_.corpus, *run_.model,
                        [this] { return run_.stop->agree(run_.ranks()) != 0; });
  if (!held_out) return std::nullopt;
  run_.reporter.evaluated(run_.position.step, *held_out, is_repeated);
  judge(held_out->whole);
  return held_out->whole;
}

void Evaluations::evaluate_in_passing() {
  last_ = evaluate(/*is_repeated=*/false);
  run_.evaluated_step = run_.position.step;
  sample();
}

std::optional<Evaluation> Evaluations::evaluate_last() {
  if (run_.evaluated_step == run_.position.step) return last_;
  std::int64_t is_repeated = 0;
  if (run_.is_lead()) {
    const fs::path log = fs::path(run_.config.run.dir) / "metrics.jsonl";
    is_repeated = has_evaluation(log, run_.position.step) ? 1 : 0;
  }
  if (!run_.ranks().is_alone()) {
    run_.ranks().group().broadcast({&is_repeated, {Dtype::kI64, {1}}}, 0);
  }
  const std::optional<Evaluation> held_out = evaluate(is_repeated != 0);
  if (held_out && is_repeated == 0) sample();
  return held_out;
}

// All ranks have the same loss, so all judge alike.
void Evaluations::judge(const Evaluation& held_out) {
  HeldOutHistory& history = run_.position.held_out;
  history.take(run_.position.step, held_out.loss, run_.config.checkpoint.keep_best,
               run_.config.train.early_stop_delta);
  run_.saver.spare(history.best_steps());
}

// From a checkpoint, which has the whole model whatever layout its ranks have.
void Evaluations::sample() {
  if (run_.config.eval.samples == 0 || run_.stop->agreed(run_.ranks()) != 0) return;
  metrics::Timeline* timeline = run_.trace.timeline();
  run_.saver.finish(run_.ranks(), timeline);
  if (run_.saver.saved_step() != run_.position.step) {
    run_.saver.save(run_.ranks(), run_.to_save(), timeline);
  }
  const metrics::ScopedSpan span(timeline, "samples", "evaluation");
  const metrics::ScopedPause pause(run_.observer, metrics::Pause::kEvaluation);
  // All learn what goes wrong, and none waits for a rank that has gone.
  run_.ranks().world().agree([&] {
    if (!run_.is_lead() || !run_.make_samples) return;
    run_.reporter.clear_bar();
    run_.make_samples(run_.position.step, run_.saver.last_checkpoint());
  });
}

bool Evaluations::stops_early() const {
  const std::int64_t patience = run_.config.train.early_stop;
  return patience > 0 && run_.position.held_out.since_lowest >= patience;
}

void Evaluations::tell_best() const {
  if (!run_.is_lead()) return;
  const Position& position = run_.position;
  if (position.without_loss > 0) {
    log::info("{} of {} were skipped: none of their tokens had a loss", position.without_loss,
              counted(position.step, "step"));
  }
  const HeldOutHistory& history = position.held_out;
  if (stops_early()) {
    log::info("stopped early: the held-out loss was not below {:.4f} in {}", history.lowest,
              counted(history.since_lowest, "evaluation"));
  }
  for (const HeldOutHistory::Best& one : history.best) {
    const fs::path path = run_.saver.path_of(one.step);
    if (!path_exists(path)) continue;
    log::info("the best held-out loss so far, {:.4f}, is that of step {}, in {}", one.loss,
              one.step, path.string());
    break;
  }
}

}  // namespace atl::train
