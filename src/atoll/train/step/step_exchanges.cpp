#include "atoll/train/step/step_exchanges.h"

#include <algorithm>

#include "atoll/train/step/step.h"

namespace atl::train {

namespace {

template <typename T>
Tensor flat_view(std::span<T> values) {
  return {values.data(), {dtype_of<T>(), {static_cast<std::int64_t>(values.size())}}};
}

template <typename T>
Tensor flat_view(std::vector<T>& values) {
  return flat_view(std::span<T>(values));
}

}  // namespace

// ---- one rank ----

MicroBatchResult OwnStep::pass(const Run& run, const PassInput& input) {
  return pass_one_by_one(state_, run, input);
}

void OwnStep::reduce(Run& run) {
  state_.store().reduce(run);
  state_.add_residual_gradient(/*sums=*/true);
}

double OwnStep::grad_norm(Run& run) {
  return state_.store().grad_norm(run);
}

void OwnStep::prepare(StepProgress& progress, bool /*waits*/) {
  progress.phase = StepProgress::Phase::kPrepared;
}

void OwnStep::update(Run& run, StepProgress& progress) {
  progress.phase = StepProgress::Phase::kCommitted;
  if (!progress.result.taken()) return;
  state_.optimizer().update(run, progress.args, state_.store().values(), state_.store().grads());
  state_.residual_gradient().drop();
}

// ---- ranks with losses of different tokens ----

void SharedLosses::nonfinite(std::vector<std::int64_t>& samples) {
  inner().nonfinite(samples);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group_.size()));
  counts[static_cast<std::size_t>(group_.rank())] = static_cast<std::int64_t>(samples.size());
  group_.all_gather(flat_view(counts), group_.even_parts(group_.size()));
  std::vector<std::int64_t> parts = {0};
  for (const std::int64_t count : counts) parts.push_back(parts.back() + count);
  std::vector<std::int64_t> all(static_cast<std::size_t>(parts.back()));
  std::copy(samples.begin(), samples.end(),
            all.begin() + parts[static_cast<std::size_t>(group_.rank())]);
  group_.all_gather(flat_view(all), parts);
  std::sort(all.begin(), all.end());
  // Ranks that share a sequence may all have found it.
  all.erase(std::unique(all.begin(), all.end()), all.end());
  samples = std::move(all);
}

void SharedLosses::sum(std::span<double> losses) {
  inner().sum(losses);
  group_.all_reduce(flat_view(losses));
}

// ---- pipeline ----

MicroBatchResult PipelineStep::pass(const Run& run, const PassInput& input) {
  return pass_through_pipeline(state_, run, input);
}

void PipelineStep::losses(Stream& stream, const PassInput& input, MicroBatchResult& own) {
  read_losses(stream, own);
  own.losses.resize(static_cast<std::size_t>(input.plan.share(input.rank)) * own.numbers_each);
  group_.broadcast(flat_view(own.losses), pipeline_.head_rank());
}

double PipelineStep::grad_norm(Run& run) {
  return pipeline_.grad_norm(run, state_.store());
}

// ---- shared sequences ----

void ContextStep::losses(Stream& stream, const PassInput& input, MicroBatchResult& own) {
  inner().losses(stream, input, own);
  read_losses(stream, own);
  group_.all_reduce(flat_view(own.losses));
}

// ---- data parallel ----

void DataParallelStep::losses(Stream& stream, const PassInput& input, MicroBatchResult& own) {
  inner().losses(stream, input, own);
  read_losses(stream, own);
  const metrics::ScopedSpan span(input.timeline, "gather losses");
  const parallel::MicroBatchPlan& plan = input.plan;
  const auto numbers = static_cast<std::int64_t>(own.numbers_each);
  std::vector<std::int64_t> parts = {0};
  for (int r = 0; r < group_.size(); ++r) {
    parts.push_back(parts.back() + plan.share(r) * numbers + 2);
  }
  std::vector<double> all(static_cast<std::size_t>(parts.back()));
  const auto mine = all.begin() + parts[static_cast<std::size_t>(group_.rank())];
  mine[0] = static_cast<double>(own.targets);
  mine[1] = static_cast<double>(own.first_sample);
  std::copy(own.losses.begin(), own.losses.end(), mine + 2);
  group_.all_gather(flat_view(all), parts);
  own.losses.resize(static_cast<std::size_t>(plan.num_micro_batches() * numbers));
  for (int r = 0; r < group_.size(); ++r) {
    auto at = all.begin() + parts[static_cast<std::size_t>(r)];
    own.targets = std::max(own.targets, static_cast<std::int64_t>(*at));
    own.first_sample = std::max(own.first_sample, static_cast<std::int64_t>(*++at));
    for (const std::int64_t number : plan.of(r)) {
      std::copy_n(at + 1, numbers, own.losses.begin() + number * numbers);
      at += numbers;
    }
  }
}

void DataParallelStep::prepare(StepProgress& progress, bool waits) {
  inner().prepare(progress, waits);
  if (waits) group_.barrier();
}

// ---- 1-bit optimizers ----

MicroBatchResult OneBitStep::pass(const Run& run, const PassInput& input) {
  sums_gradients_ = optimizer_.begin_step(run.step);
  store_.set_sums_gradients(sums_gradients_);
  return inner().pass(run, input);
}

void OneBitStep::reduce(Run& run) {
  store_.reduce(run);
  state_.add_residual_gradient(sums_gradients_);
}

double OneBitStep::grad_norm(Run& run) {
  return sums_gradients_ ? inner().grad_norm(run) : optimizer_.grad_norm(run, store_.grads());
}

void OneBitStep::update(Run& run, StepProgress& progress) {
  inner().update(run, progress);
  if (!progress.result.taken()) optimizer_.skip(run, store_.values());
}

// ---- copies of shares ----

// The norm stays the last that ranks exchange before they copy gradients.
void ReplicatedStep::prepare(StepProgress& progress, bool waits) {
  replica_.receive_gradients(shard_);
  inner().prepare(progress, waits);
}

void ReplicatedStep::update(Run& run, StepProgress& progress) {
  inner().update(run, progress);
  if (progress.result.taken()) replica_.update(run, progress.args);
}

}  // namespace atl::train
