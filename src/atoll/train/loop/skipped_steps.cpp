#include "atoll/train/loop/skipped_steps.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/train/loop/step_telemetry.h"
#include "atoll/train/step/nonfinite.h"

namespace atl::train {

namespace {

// A run that meets this many bad steps in a row does not recover by skipping more.
constexpr std::int64_t kMaxSkippedInARow = 10;
// Data of which so many batches in a row have no token with a loss is not what was meant.
constexpr std::int64_t kMostWithoutLoss = 100;

void save_before_error(TrainRun& run) {
  run.saver.finish(run.ranks(), run.trace.timeline());
  // With servers the optimizer's state is there, and what is here is older.
  const bool has_state = run.config.sync.mode != "ps";
  if (run.position.step > 0 && run.saver.saved_step() != run.position.step && has_state) {
    run.saver.save(run.ranks(), run.to_save(), run.trace.timeline());
  }
}

// Whether any of so many batches from the present one on has a target.
bool has_loss_within(const TrainRun& run, std::int64_t num_batches) {
  data::RowScratch scratch;
  for (std::int64_t i = 0; i < num_batches; ++i) {
    const std::int64_t targets = data::count_step_targets(run.batches->samples(), run.batch() + i,
                                                          run.config.train.batch_size, scratch);
    if (targets != data::kNoTargets) return true;
  }
  return false;
}

// Data has such batches now and then; where it has nothing else, somebody has made a mistake.
void handle_without_loss(TrainRun& run) {
  const LoopSettings& train = run.config.train;
  const Position& position = run.position;
  const std::int64_t step = position.step + 1;
  run.reporter.record(
      {.step = step, .values = {{"steps_without_loss", position.without_loss + 1}}});
  const std::string what = fmt::format(
      "none of the tokens of {} ({}{}) has a loss", counted(train.batch_size, "sequence"),
      run.batches->samples().describe(run.batch() * train.batch_size),
      train.batch_size > 1 ? ", ..." : "");
  const std::int64_t ahead = std::min(kMostWithoutLoss, train.last_step() - position.step);
  const bool has_learned = position.without_loss < position.step;
  if (has_loss_within(run, ahead) || (has_learned && ahead < kMostWithoutLoss)) {
    if (run.is_lead() && position.without_loss == 0) {
      log::warning(
          "step {}: {}; the step is skipped, and no parameter changes. Step lines count such steps "
          "as \"without loss\"",
          step, what);
    }
    return;
  }
  save_before_error(run);
  throw user_error(
      "step {} has nothing to learn from: {}, and none in the {} after it has one; use a larger "
      "batch (train.batch_size) or context (train.context), or data with more completions",
      step, what, counted(ahead - 1, "step"));
}

// Of a StepSource: numbers alone, as no text has them.
NonfiniteSamples name_completions(const StepResult& result) {
  std::string numbers;
  for (const std::int64_t sample : result.nonfinite_samples) {
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", sample);
  }
  return {.first = fmt::format("Completion {}", result.nonfinite_samples.front()),
          .places = numbers};
}

void handle_nonfinite(TrainRun& run, const StepResult& result) {
  const std::int64_t step = run.position.step + 1;
  tell_observer(run, result, step);
  // Where in the text they are takes a line each: that is for the log.
  const NonfiniteSamples samples =
      run.batches ? name_nonfinite(run.batches->samples(), result) : name_completions(result);
  run.reporter.record(
      {.step = step,
       .values = {{"nonfinite", std::int64_t{1}}, {"nonfinite_samples", samples.places}}});
  const std::string what =
      fmt::format("step {}: loss {}, grad_norm {}", step, result.loss, result.grad_norm);
  const std::filesystem::path log = std::filesystem::path(run.config.run.dir) / "metrics.jsonl";
  const std::string where =
      run.batches ? fmt::format("{} may be the cause; {} says where in the text to look",
                                samples.first, log.string())
                  : fmt::format("{} may be the cause", samples.first);
  const bool skips = run.config.train.on_nonfinite == "skip";
  if (skips && run.skipped_in_a_row + 1 < kMaxSkippedInARow) {
    if (run.is_lead()) {
      log::warning("{}; the step is skipped, and no parameter changes. {}", what, where);
    }
    return;
  }
  save_before_error(run);
  const std::int64_t saved = run.saver.saved_step();
  throw make_error(
      ErrorKind::kNumeric, "{}{}. Lower optim.lr{}. No parameter changed; {}. {}", what,
      skips ? fmt::format(" ({} steps in a row were not finite)", kMaxSkippedInARow) : "",
      skips ? "" : ", or set train.on_nonfinite=skip",
      saved < 0 ? "there is no checkpoint yet"
                : fmt::format("the last checkpoint is of step {}", saved),
      where);
}

}  // namespace

void handle_skipped(TrainRun& run, const StepResult& result) {
  if (result.nonfinite_samples.empty()) {
    ATOLL_CHECK(run.batches.has_value(), "a sampled step without a token");
    return handle_without_loss(run);
  }
  handle_nonfinite(run, result);
}

}  // namespace atl::train
