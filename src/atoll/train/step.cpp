#include "atoll/train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include "atoll/data/loader.h"
#include "atoll/optim/clip.h"
#include "atoll/tensor/host_access.h"

namespace atl::train {

namespace {

using metrics::ScopedSpan;

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

template <typename T>
Tensor flat_view(std::vector<T>& values) {
  return {values.data(), {dtype_of<T>(), {static_cast<std::int64_t>(values.size())}}};
}

using Micro = MicroBatchResult;

// The targets of the step that a batch is part of.
std::int64_t targets_of(const Batch& batch, const parallel::MicroBatchPlan& plan,
                        const StateOptions& shape) {
  if (batch.step_targets == data::kNoTargets) return 0;
  if (batch.step_targets > 0) return batch.step_targets;
  return plan.num_micro_batches() * shape.micro_batch * shape.context;
}

// Without a target all gradients are 0, and passes are made as ever: ranks wait for each other.
double scale_of(std::int64_t targets) {
  return targets == 0 ? 0 : 1.0 / static_cast<double>(targets);
}

// Losses of a step that are on their way to the host.
struct Coming {
  Tensor losses;                            // (micro-batches, B, T), host memory
  std::vector<std::int64_t> first_samples;  // of each micro-batch that was taken
};

// Waits for them. Behind the gradient norm they are there: that is the only wait of the host for
// the device between the first pass of a step and its update.
void read_losses(Stream& stream, const Tensor& losses, std::span<const std::int64_t> first_samples,
                 Micro& micro) {
  stream.synchronize();
  for (std::int64_t i = 0; i < losses.dim(0); ++i) {
    const Tensor one = losses.rows(i, i + 1).reshaped({losses.dim(1), losses.dim(2)});
    micro.losses.push_back(parallel::sum_of_losses(one));
    if (std::isfinite(micro.losses.back())) continue;
    find_nonfinite(one, first_samples[static_cast<std::size_t>(i)], micro.nonfinite_samples);
  }
}

// Those that share parameters, of data-parallel ranks: each stands for the parts of its sequences.
std::vector<int> with_parts(const std::vector<int>& data_ranks, const comm::Group* context) {
  if (context == nullptr) return data_ranks;
  std::vector<int> ranks;
  for (const int rank : data_ranks) {
    for (int part = 0; part < context->size(); ++part) {
      ranks.push_back(rank * context->size() + part);
    }
  }
  return ranks;
}

// Forward and backward of this rank's micro-batches.
Micro pass_micro_batches(TrainState& state, Run run, const StepOptions& options,
                         const parallel::MicroBatchPlan& plan, int rank,
                         const std::function<Batch()>& next, Coming& coming) {
  const StateOptions& shape = state.options();
  const std::vector<std::int64_t> numbers = plan.of(rank);
  coming.losses = state.host_losses(plan.share(rank));
  Micro micro;
  for (std::int64_t round = 0; round < plan.rounds(); ++round) {
    const std::vector<int> contributors =
        with_parts(plan.contributors(round), state.context_group());
    state.store().begin_round({round, round + 1 == plan.rounds(), contributors});
    if (round >= plan.share(rank)) {
      state.runner().idle(run, /*training=*/true);
      continue;
    }
    const Batch batch = [&] {
      const ScopedSpan span(options.timeline, "next batch", "data");
      return state.own_part(next());
    }();
    micro.targets = targets_of(batch, plan, shape);
    micro.first_sample =
        batch.first_sample - numbers[static_cast<std::size_t>(round)] * shape.micro_batch;
    run.loss_scale = scale_of(micro.targets);
    const double waited = state.store().waited_seconds();
    const auto start = std::chrono::steady_clock::now();
    state.runner().forward_backward(run, {&batch, 1});
    const Tensor one = state.runner().losses();
    queue_copy(*run.stream, one, coming.losses.rows(round, round + 1).reshaped(one.shape()));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    micro.seconds += took.count() - (state.store().waited_seconds() - waited);
    coming.first_samples.push_back(batch.first_sample);
  }
  return micro;
}

}  // namespace

MicroBatchResult run_micro_batches(TrainState& state, Run run, const StepOptions& options,
                                   const parallel::MicroBatchPlan& plan, int rank,
                                   const std::function<Batch()>& next) {
  Coming coming;
  Micro micro = pass_micro_batches(state, run, options, plan, rank, next, coming);
  read_losses(*run.stream, coming.losses, coming.first_samples, micro);
  return micro;
}

namespace {

// All of them at once, through the ranks of a pipeline, which all read the same.
Micro run_pipeline(TrainState& state, Run run, const StepOptions& options,
                   const parallel::MicroBatchPlan& plan, const std::function<Batch()>& next) {
  const StateOptions& shape = state.options();
  const int rank = options.group == nullptr ? 0 : options.group->rank();
  const std::vector<std::int64_t> numbers = plan.of(rank);
  state.store().begin_round({});
  const std::span<const Batch> batches = [&] {
    const ScopedSpan span(options.timeline, "next batches", "data");
    return state.hold(plan.share(rank), next);
  }();
  Micro micro;
  micro.targets = targets_of(batches.front(), plan, shape);
  micro.first_sample = batches.front().first_sample - numbers.front() * shape.micro_batch;
  run.loss_scale = scale_of(micro.targets);
  const double waited = state.store().waited_seconds() + state.runner().waited_seconds();
  const auto start = std::chrono::steady_clock::now();
  state.runner().forward_backward(run, batches);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  micro.seconds =
      took.count() - (state.store().waited_seconds() + state.runner().waited_seconds() - waited);
  if (state.runner().has_losses()) {
    const Tensor losses = state.host_losses(plan.share(rank));
    std::vector<std::int64_t> first_samples;
    for (std::int64_t i = 0; i < plan.share(rank); ++i) {
      const Tensor one = state.runner().losses(static_cast<std::size_t>(i));
      queue_copy(*run.stream, one, losses.rows(i, i + 1).reshaped(one.shape()));
      first_samples.push_back(batches[static_cast<std::size_t>(i)].first_sample);
    }
    read_losses(*run.stream, losses, first_samples, micro);
  }
  micro.losses.resize(batches.size());
  state.pipeline()->group().broadcast(flat_view(micro.losses), state.pipeline()->head_rank());
  return micro;
}

// Ranks that share sequences have the losses of their own tokens each.
void sum_over_context(comm::Group& context, Micro& micro) {
  context.all_reduce(flat_view(micro.losses));
}

// Everybody's losses in the order of micro-batches, and what is the same for the whole step.
void gather_losses(const StepOptions& options, const parallel::MicroBatchPlan& plan, Micro& micro) {
  const ScopedSpan span(options.timeline, "gather losses");
  comm::Group& group = *options.group;
  std::vector<std::int64_t> parts = {0};
  for (int r = 0; r < group.size(); ++r) parts.push_back(parts.back() + plan.share(r) + 2);
  std::vector<double> all(static_cast<std::size_t>(parts.back()));
  const auto mine = all.begin() + parts[static_cast<std::size_t>(group.rank())];
  mine[0] = static_cast<double>(micro.targets);
  mine[1] = static_cast<double>(micro.first_sample);
  std::copy(micro.losses.begin(), micro.losses.end(), mine + 2);
  group.all_gather(flat_view(all), parts);
  micro.losses.resize(static_cast<std::size_t>(plan.num_micro_batches()));
  for (int r = 0; r < group.size(); ++r) {
    auto at = all.begin() + parts[static_cast<std::size_t>(r)];
    micro.targets = std::max(micro.targets, static_cast<std::int64_t>(*at));
    micro.first_sample = std::max(micro.first_sample, static_cast<std::int64_t>(*++at));
    for (const std::int64_t number : plan.of(r)) {
      micro.losses[static_cast<std::size_t>(number)] = *++at;
    }
  }
}

// The samples that any rank found, ascending.
std::vector<std::int64_t> gather_samples(comm::Group& group, std::vector<std::int64_t> samples) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()));
  counts[static_cast<std::size_t>(group.rank())] = static_cast<std::int64_t>(samples.size());
  group.all_gather(flat_view(counts), group.even_parts(group.size()));
  std::vector<std::int64_t> parts = {0};
  for (const std::int64_t count : counts) parts.push_back(parts.back() + count);
  std::vector<std::int64_t> all(static_cast<std::size_t>(parts.back()));
  std::copy(samples.begin(), samples.end(),
            all.begin() + parts[static_cast<std::size_t>(group.rank())]);
  group.all_gather(flat_view(all), parts);
  std::sort(all.begin(), all.end());
  return all;
}

// The update, where the step is taken.
void apply(TrainState& state, Run run, StepProgress& progress) {
  progress.phase = StepProgress::Phase::kCommitted;
  if (!progress.result.taken()) {
    if (state.onebit() != nullptr) state.onebit()->skip(run, state.store().values());
    return;
  }
  run.scratch = state.optimizer_scratch();
  state.optimizer().update(run, progress.args, state.store().values(), state.store().grads());
  state.owed_gradient().drop();
  if (state.replica() != nullptr) state.replica()->update(run, progress.args);
}

}  // namespace

StepResult take_step(TrainState& state, Stream& stream, const StepOptions& options,
                     const std::function<Batch()>& next) {
  Run run = {
      .stream = &stream, .seed = options.seed, .step = options.step, .profile = options.profile};
  std::optional<parallel::MicroBatchPlan> alone;
  if (options.plan == nullptr) alone.emplace(options.num_micro_batches, 1);
  const parallel::MicroBatchPlan& plan = alone ? *alone : *options.plan;
  parallel::PipelinePart* pipeline = state.pipeline();
  const bool sums_gradients = state.begin_step(options.step);
  const int rank = options.group == nullptr ? 0 : options.group->rank();
  Coming coming;
  Micro micro = pipeline == nullptr
                    ? pass_micro_batches(state, run, options, plan, rank, next, coming)
                    : run_pipeline(state, run, options, plan, next);
  // A rank alone reads them behind the gradient norm, and so waits once. Others wait for each other
  // anyway, and the norm stays the last that they exchange before copies of gradients.
  const bool is_alone = options.group == nullptr && pipeline == nullptr && !state.context_group();
  const auto read = [&] { read_losses(stream, coming.losses, coming.first_samples, micro); };
  if (!is_alone && pipeline == nullptr) read();
  if (comm::Group* context = state.context_group()) sum_over_context(*context, micro);
  if (options.group != nullptr) gather_losses(options, plan, micro);
  StepResult result;
  {
    const ScopedSpan span(options.timeline, "finish gradients", "wait");
    state.store().reduce(run);
    state.add_owed_gradient(sums_gradients);
  }
  {
    const ScopedSpan span(options.timeline, "gradient norm");
    if (!sums_gradients) {
      result.grad_norm = state.onebit()->grad_norm(run, state.store().grads());
    } else {
      result.grad_norm = pipeline == nullptr ? state.store().grad_norm(run)
                                             : pipeline->grad_norm(run, state.store());
    }
  }
  if (is_alone) read();
  result.targets = micro.targets;
  if (const std::int64_t own = plan.share(rank); own > 0) {
    result.compute_seconds = micro.seconds / static_cast<double>(own);
  }
  result.has_targets = micro.targets > 0;
  const auto targets = static_cast<double>(std::max<std::int64_t>(micro.targets, 1));
  for (const double loss : micro.losses) result.loss += loss / targets;
  result.nonfinite_samples = std::move(micro.nonfinite_samples);
  if (pipeline != nullptr && !std::isfinite(result.loss)) {
    result.nonfinite_samples =
        gather_samples(pipeline->group(), std::move(result.nonfinite_samples));
  }
  if (comm::Group* context = state.context_group(); context && !std::isfinite(result.loss)) {
    result.nonfinite_samples = gather_samples(*context, std::move(result.nonfinite_samples));
    const auto twice =
        std::unique(result.nonfinite_samples.begin(), result.nonfinite_samples.end());
    result.nonfinite_samples.erase(twice, result.nonfinite_samples.end());
  }
  if (options.group != nullptr && !std::isfinite(result.loss)) {
    result.nonfinite_samples = gather_samples(*options.group, std::move(result.nonfinite_samples));
  }
  if (result.taken() && !std::isfinite(result.grad_norm)) {
    const std::int64_t samples = plan.num_micro_batches() * state.options().micro_batch;
    result.nonfinite_samples.resize(static_cast<std::size_t>(samples));
    std::iota(result.nonfinite_samples.begin(), result.nonfinite_samples.end(), micro.first_sample);
  }
  if (state.replica() != nullptr) state.replica()->receive_gradients(*state.shard_group());
  StepProgress own_progress;
  StepProgress& progress = options.progress == nullptr ? own_progress : *options.progress;
  progress.result = result;
  progress.args = {.lr = options.lr,
                   .grad_scale = optim::clip_scale(result.grad_norm, options.clip),
                   .step = options.step + 1,
                   .parts = state.tensor_group()};
  progress.phase = StepProgress::Phase::kPrepared;
  // Who comes through here knows that all ranks came this far: whatever becomes of them, those that
  // are left can make the update.
  if (options.progress != nullptr && options.group != nullptr) options.group->barrier();
  const ScopedSpan span(options.timeline, "optimizer");
  apply(state, run, progress);
  if (result.taken()) state.store().publish(run);
  return result;
}

void finish_step(TrainState& state, Stream& stream, std::uint64_t seed, StepProgress& progress) {
  ATOLL_CHECK(progress.phase == StepProgress::Phase::kPrepared, "a step that is not prepared");
  apply(state, {.stream = &stream, .seed = seed, .step = progress.args.step - 1}, progress);
}

}  // namespace atl::train
