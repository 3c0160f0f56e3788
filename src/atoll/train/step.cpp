#include "atoll/train/step.h"

#include <cmath>

#include "atoll/ops/elementwise.h"
#include "atoll/optim/clip.h"

namespace atl::train {

namespace {

void find_nonfinite(const Tensor& losses, std::int64_t first_sample,
                    std::vector<std::int64_t>& samples) {
  for (std::int64_t b = 0; b < losses.dim(0); ++b) {
    for (std::int64_t t = 0; t < losses.dim(1); ++t) {
      if (std::isfinite(losses.data<float>()[b * losses.dim(1) + t])) continue;
      samples.push_back(first_sample + b);
      break;
    }
  }
}

}  // namespace

StepResult take_step(TrainState& state, Stream& stream, const StepOptions& options,
                     const std::function<Batch()>& next) {
  const StateOptions& shape = state.options();
  const std::int64_t samples = options.num_micro_batches * shape.micro_batch;
  Run run = {.stream = &stream, .seed = options.seed, .step = options.step};
  StepResult result;
  std::int64_t first_sample = 0;
  ops::fill_zero(run, state.store().grads());
  for (std::int64_t i = 0; i < options.num_micro_batches; ++i) {
    const Batch batch = next();
    if (i == 0) first_sample = batch.first_sample;
    result.targets = batch.step_targets > 0 ? batch.step_targets : samples * shape.context;
    const auto targets = static_cast<double>(result.targets);
    run.loss_scale = 1.0 / targets;
    const double loss = state.runner().train(run, batch);
    result.loss += loss / targets;
    if (!std::isfinite(loss)) {
      find_nonfinite(state.runner().losses(), batch.first_sample, result.nonfinite_samples);
    }
  }
  result.grad_norm = optim::grad_norm(run, state.store().grads());
  if (result.taken() && !std::isfinite(result.grad_norm)) {
    for (std::int64_t s = 0; s < samples; ++s) result.nonfinite_samples.push_back(first_sample + s);
  }
  if (!result.taken()) return result;
  run.scratch = state.optimizer_scratch();
  state.optimizer().update(run,
                           {.lr = options.lr,
                            .grad_scale = optim::clip_scale(result.grad_norm, options.clip),
                            .step = options.step + 1},
                           state.store().values(), state.store().grads());
  return result;
}

}  // namespace atl::train
