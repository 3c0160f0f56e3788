#include "atoll/train/step/step_passes.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include "atoll/data/loader.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

using metrics::ScopedSpan;
using Clock = std::chrono::steady_clock;

// The targets of the step that a batch is part of.
std::int64_t targets_of(const Batch& batch, const parallel::MicroBatchPlan& plan,
                        const StateOptions& shape) {
  if (batch.step_targets == data::kNoTargets) return 0;
  if (batch.step_targets > 0) return batch.step_targets;
  return plan.num_micro_batches() * shape.micro_batch * shape.context;
}

// Without a target all gradients are 0, and passes are made as ever: ranks wait for each other. The
// targets of pairs are pairs, of two sequences each.
double scale_of(std::int64_t targets, const StateOptions& shape) {
  const std::int64_t positions = shape.preference ? 2 * shape.context * targets : targets;
  return positions == 0 ? 0 : 1.0 / static_cast<double>(positions);
}

// The ranks that share parameters, of data-parallel ranks: each stands for the `num_parts` parts of
// its sequences.
std::vector<int> with_parts(const std::vector<int>& data_ranks, int num_parts) {
  std::vector<int> ranks;
  for (const int rank : data_ranks) {
    for (int part = 0; part < num_parts; ++part) ranks.push_back(rank * num_parts + part);
  }
  return ranks;
}

double waited_seconds(TrainState& state) {
  return state.store().waited_seconds() + state.runner().waited_seconds();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void find_nonfinite(const Tensor& losses, std::int64_t first_sample,
                    std::vector<std::int64_t>& samples) {
  for (std::int64_t b = 0; b < losses.dim(0); ++b) {
    const HostRead row(losses.rows(b, b + 1));
    const std::span<const float> all = row.elements<float>();
    const bool is_finite =
        std::all_of(all.begin(), all.end(), [](float x) { return std::isfinite(x); });
    if (!is_finite) samples.push_back(first_sample + b);
  }
}

}  // namespace

std::size_t numbers_of_losses(const StateOptions& shape) {
  return shape.preference ? nn::PreferenceSums::kCount : 1;
}

MicroBatchResult pass_one_by_one(TrainState& state, Run run, const PassInput& input) {
  const StateOptions& shape = state.options();
  const parallel::MicroBatchPlan& plan = input.plan;
  const std::vector<std::int64_t> numbers = plan.of(input.rank);
  MicroBatchResult micro;
  micro.numbers_each = numbers_of_losses(shape);
  micro.pending_losses = state.host_losses(plan.share(input.rank));
  for (std::int64_t round = 0; round < plan.rounds(); ++round) {
    const std::vector<int> contributors =
        with_parts(plan.contributors(round), shape.build.context_size);
    state.store().begin_round({round, round + 1 == plan.rounds(), contributors});
    if (round >= plan.share(input.rank)) {
      state.runner().idle(run, /*training=*/true);
      continue;
    }
    const Batch batch = [&] {
      const ScopedSpan span(input.timeline, "next batch", "data");
      return state.own_part(input.next());
    }();
    micro.targets = targets_of(batch, plan, shape);
    micro.first_sample =
        batch.first_sample - numbers[static_cast<std::size_t>(round)] * shape.micro_batch;
    run.loss_scale = scale_of(micro.targets, shape);
    const double waited = state.store().waited_seconds();
    const Clock::time_point start = Clock::now();
    state.runner().forward_backward(run, {&batch, 1});
    const Tensor one = state.runner().losses();
    queue_copy(*run.stream, one, micro.pending_losses.rows(round, round + 1).reshaped(one.shape()));
    micro.seconds += seconds_since(start) - (state.store().waited_seconds() - waited);
    micro.first_samples.push_back(batch.first_sample);
  }
  return micro;
}

MicroBatchResult pass_through_pipeline(TrainState& state, Run run, const PassInput& input) {
  const StateOptions& shape = state.options();
  const std::int64_t share = input.plan.share(input.rank);
  state.store().begin_round({});
  const std::span<const Batch> batches = [&] {
    const ScopedSpan span(input.timeline, "next batches", "data");
    return state.hold(share, input.next);
  }();
  MicroBatchResult micro;
  micro.numbers_each = numbers_of_losses(shape);
  micro.targets = targets_of(batches.front(), input.plan, shape);
  micro.first_sample =
      batches.front().first_sample - input.plan.of(input.rank).front() * shape.micro_batch;
  run.loss_scale = scale_of(micro.targets, shape);
  const double waited = waited_seconds(state);
  const Clock::time_point start = Clock::now();
  state.runner().forward_backward(run, batches);
  micro.seconds = seconds_since(start) - (waited_seconds(state) - waited);
  if (!state.runner().has_losses()) return micro;
  micro.pending_losses = state.host_losses(share);
  for (std::int64_t i = 0; i < share; ++i) {
    const Tensor one = state.runner().losses(static_cast<std::size_t>(i));
    queue_copy(*run.stream, one, micro.pending_losses.rows(i, i + 1).reshaped(one.shape()));
    micro.first_samples.push_back(batches[static_cast<std::size_t>(i)].first_sample);
  }
  return micro;
}

void read_losses(Stream& stream, MicroBatchResult& micro) {
  if (!micro.pending_losses.defined()) return;
  const Tensor losses = micro.pending_losses;
  micro.pending_losses = {};
  stream.synchronize();
  for (std::int64_t i = 0; i < losses.dim(0); ++i) {
    const Tensor one = losses.rows(i, i + 1).reshaped({losses.dim(1), losses.dim(2)});
    const auto first = static_cast<std::ptrdiff_t>(micro.losses.size());
    if (micro.numbers_each == 1) {
      micro.losses.push_back(parallel::sum_of_losses(one));
    } else {
      const auto numbers = nn::sums_of_pairs(one).numbers();
      micro.losses.insert(micro.losses.end(), numbers.begin(), numbers.end());
    }
    if (std::isfinite(micro.losses[static_cast<std::size_t>(first)])) continue;
    find_nonfinite(one, micro.first_samples[static_cast<std::size_t>(i)], micro.nonfinite_samples);
  }
}

}  // namespace atl::train
