#include "atoll/train/step/step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "atoll/base/check.h"
#include "atoll/optim/clip.h"
#include "atoll/train/step/step_exchange.h"
#include "atoll/train/step/step_passes.h"

namespace atl::train {

namespace {

using metrics::ScopedSpan;

parallel::MicroBatchPlan plan_of(const StepOptions& options) {
  if (options.plan != nullptr) return *options.plan;
  return {options.num_micro_batches, 1};
}

// The samples that make a step not finite: those whose loss is not; where only the gradient is not,
// all of them.
std::vector<std::int64_t> find_nonfinite(StepExchange& with, const MicroBatchResult& micro,
                                         const StepResult& result, std::int64_t num_samples) {
  std::vector<std::int64_t> samples = micro.nonfinite_samples;
  if (!std::isfinite(result.loss)) with.nonfinite(samples);
  if (samples.empty() && result.has_targets && !std::isfinite(result.grad_norm)) {
    samples.resize(static_cast<std::size_t>(num_samples));
    std::iota(samples.begin(), samples.end(), micro.first_sample);
  }
  return samples;
}

StepResult result_of(StepExchange& with, const PassInput& input, const MicroBatchResult& micro,
                     double grad_norm, std::int64_t samples_of_each) {
  StepResult result = {
      .grad_norm = grad_norm, .targets = micro.targets, .has_targets = micro.targets > 0};
  const auto targets = static_cast<double>(std::max<std::int64_t>(micro.targets, 1));
  if (micro.numbers_each > 1) result.preferences.emplace();
  for (std::size_t i = 0; i < micro.losses.size(); i += micro.numbers_each) {
    result.loss += micro.losses[i] / targets;
    if (!result.preferences) continue;
    *result.preferences +=
        nn::PreferenceSums::of(std::span(micro.losses).subspan(i, micro.numbers_each));
  }
  if (const std::int64_t own = input.plan.share(input.rank); own > 0) {
    result.compute_seconds = micro.seconds / static_cast<double>(own);
  }
  result.nonfinite_samples =
      find_nonfinite(with, micro, result, input.plan.num_micro_batches() * samples_of_each);
  return result;
}

void reduce(StepExchange& with, Run& run, metrics::Timeline* timeline) {
  const ScopedSpan span(timeline, "finish gradients", "wait");
  with.reduce(run);
}

double grad_norm(StepExchange& with, Run& run, metrics::Timeline* timeline) {
  const ScopedSpan span(timeline, "gradient norm");
  return with.grad_norm(run);
}

void update(TrainState& state, Run run, StepProgress& progress) {
  run.scratch = state.optimizer_scratch();
  state.exchange().update(run, progress);
}

}  // namespace

StepResult take_step(TrainState& state, Stream& stream, const StepOptions& options,
                     const std::function<Batch()>& next) {
  StepExchange& with = state.exchange();
  Run run = {.stream = &stream, .seed = options.seed, .step = options.step};
  run.row_stable = options.row_stable;
  run.profile = options.profile;
  const parallel::MicroBatchPlan plan = plan_of(options);
  const PassInput input = {plan, state.data_rank(), next, options.timeline};

  MicroBatchResult micro = with.pass(run, input);  // forward and backward
  with.losses(stream, input, micro);
  reduce(with, run, options.timeline);
  const double norm = grad_norm(with, run, options.timeline);
  read_losses(stream, micro);

  StepProgress own_progress;
  StepProgress& progress = options.progress == nullptr ? own_progress : *options.progress;
  progress.result = result_of(with, input, micro, norm, state.options().micro_batch);
  progress.args = {.lr = options.lr,
                   .grad_scale = optim::clip_scale(norm, options.clip),
                   .step = options.step + 1,
                   .parts = state.tensor_group()};
  with.prepare(progress, /*waits=*/options.progress != nullptr);
  const ScopedSpan span(options.timeline, "optimizer");
  update(state, run, progress);
  if (progress.result.taken()) state.store().publish(run);
  return progress.result;
}

void finish_step(TrainState& state, Stream& stream, std::uint64_t seed, StepProgress& progress) {
  ATOLL_CHECK(progress.phase == StepProgress::Phase::kPrepared, "a step that is not prepared");
  update(state, {.stream = &stream, .seed = seed, .step = progress.args.step - 1}, progress);
}

}  // namespace atl::train
