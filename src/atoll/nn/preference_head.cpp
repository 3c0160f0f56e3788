#include "atoll/nn/preference_head.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/nn/tensor_parallel.h"
#include "atoll/nn/waiting.h"
#include "atoll/tensor/host_access.h"

namespace atl::nn {

namespace {

// The sum of each row, and how many of its positions have a target.
template <typename T>
void add_rows(std::span<const T> losses, std::span<const std::int32_t> targets,
              std::vector<double>& sums) {
  const std::size_t rows = sums.size() / 2;
  const std::size_t length = losses.size() / rows;
  for (std::size_t b = 0; b < rows; ++b) {
    for (std::size_t t = b * length; t < (b + 1) * length; ++t) {
      if (targets[t] == kIgnoreTarget) continue;
      sums[b] += static_cast<double>(losses[t]);
      sums[rows + b] += 1;
    }
  }
}

// What is said of a pair, in the order of PreferenceSums: the first four in its first row.
PreferenceSums::Numbers numbers_of(const PairLoss& pair) {
  return PreferenceSums{.loss = pair.loss,
                        .chosen_reward = pair.chosen_reward,
                        .rejected_reward = pair.rejected_reward,
                        .num_chosen = pair.has_chosen ? 1.0 : 0.0,
                        .num_rejected = pair.has_rejected ? 1.0 : 0.0,
                        .num_pairs = pair.counts ? 1.0 : 0.0,
                        .num_right = pair.is_right ? 1.0 : 0.0}
      .numbers();
}

// Where number i of pair k is in y, whose rows are so long.
std::size_t place_of(std::size_t k, std::size_t i, std::size_t length) {
  constexpr auto kFirst = static_cast<std::size_t>(kLeastPairContext);
  return i < kFirst ? 2 * k * length + i : (2 * k + 1) * length + i - kFirst;
}

template <typename T>
void write_pairs(std::span<T> y, std::size_t length, const std::vector<PairLoss>& pairs) {
  std::fill(y.begin(), y.end(), T{0});
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    const PreferenceSums::Numbers numbers = numbers_of(pairs[k]);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      y[place_of(k, i, length)] = static_cast<T>(numbers[i]);
    }
  }
}

template <typename T>
PreferenceSums read_pairs(std::span<const T> y, std::size_t length) {
  PreferenceSums sums;
  for (std::size_t k = 0; k < y.size() / length / 2; ++k) {
    PreferenceSums::Numbers numbers = {};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<double>(y[place_of(k, i, length)]);
    }
    sums += PreferenceSums::of(numbers);
  }
  return sums;
}

std::size_t length_of(const Tensor& y) {
  return static_cast<std::size_t>(y.dim(1));
}

Spec one_row(const Spec& x) {
  return {x.dtype, {1, x.shape.dim(1), x.shape.dim(2)}};
}

}  // namespace

PreferenceSums::Numbers PreferenceSums::numbers() const {
  return {loss, chosen_reward, rejected_reward, num_chosen, num_rejected, num_pairs, num_right};
}

PreferenceSums PreferenceSums::of(std::span<const double> numbers) {
  ATOLL_CHECK(numbers.size() == kCount, "{} numbers", numbers.size());
  return {.loss = numbers[0],
          .chosen_reward = numbers[1],
          .rejected_reward = numbers[2],
          .num_chosen = numbers[3],
          .num_rejected = numbers[4],
          .num_pairs = numbers[5],
          .num_right = numbers[6]};
}

PreferenceSums& PreferenceSums::operator+=(const PreferenceSums& other) {
  Numbers sums = numbers();
  const Numbers more = other.numbers();
  for (std::size_t i = 0; i < kCount; ++i) sums[i] += more[i];
  return *this = of(sums);
}

std::vector<double> sums_of_rows(const Tensor& y) {
  const HostRead read(y);
  std::vector<double> sums(static_cast<std::size_t>(y.dim(0)));
  const auto add = [&](const auto& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      sums[i / length_of(y)] += static_cast<double>(values[i]);
    }
  };
  if (y.dtype() == Dtype::kF64) {
    add(read.elements<double>());
  } else {
    add(read.elements<float>());
  }
  return sums;
}

PreferenceSums sums_of_pairs(const Tensor& y) {
  const HostRead read(y);
  return y.dtype() == Dtype::kF64 ? read_pairs(read.elements<double>(), length_of(y))
                                  : read_pairs(read.elements<float>(), length_of(y));
}

PreferenceHead::PreferenceHead(std::unique_ptr<Layer> inner, const PreferenceOptions& options,
                               Axis* context, std::shared_ptr<const PreferenceSource> source)
    : inner_(std::move(inner)), options_(options), context_(context), source_(std::move(source)) {}

Footprint PreferenceHead::plan(Spec x) const {
  Footprint footprint = inner_->plan(x);
  const Shape& y = footprint.y.shape;
  ATOLL_CHECK(footprint.gradients_in_forward, "a head that makes no gradients in its forward pass");
  ATOLL_CHECK(y.dim(0) % 2 == 0 && y.dim(1) >= kLeastPairContext, "{}", footprint.y.to_string());
  footprint.scratch_bytes =
      std::max(footprint.scratch_bytes, inner_->plan(one_row(x)).scratch_bytes);
  return footprint;
}

void PreferenceHead::forward(Run& run, const Pass& pass) {
  if (!source_->of) return inner_->forward(run, pass);
  Run looking = run;
  looking.training = false;
  Pass without_gradients = pass;
  without_gradients.kept = {};
  inner_->forward(looking, without_gradients);
  const std::vector<PairLoss> pairs = preference_losses(options_, scores(pass));
  if (run.training) add_gradients(run, pass, pairs);
  report(pass, pairs);
}

std::vector<SequenceScore> PreferenceHead::scores(const Pass& pass) const {
  const auto rows = static_cast<std::size_t>(pass.y.dim(0));
  std::vector<double> sums(2 * rows);
  const HostRead losses(pass.y);
  const HostRead targets(pass.batch->targets);
  if (pass.y.dtype() == Dtype::kF64) {
    add_rows(losses.elements<double>(), targets.elements<std::int32_t>(), sums);
  } else {
    add_rows(losses.elements<float>(), targets.elements<std::int32_t>(), sums);
  }
  if (context_ != nullptr && context_->size > 1) {
    ATOLL_CHECK(context_->group != nullptr, "ranks that share sequences are not connected");
    const Waiting waiting(*context_);
    context_->group->all_reduce(
        {sums.data(), {Dtype::kF64, {static_cast<std::int64_t>(sums.size())}}});
  }
  std::vector<SequenceScore> scores(rows);
  for (std::size_t b = 0; b < rows; ++b) {
    scores[b].logp = -sums[b];
    scores[b].tokens = static_cast<std::int64_t>(sums[rows + b]);
    if (scores[b].tokens == 0) continue;  // an empty row, of which nothing is known
    const SampleFacts facts = source_->of(pass.batch->first_sample + static_cast<std::int64_t>(b));
    scores[b].reference = facts.reference;
    scores[b].is_desirable = facts.is_desirable;
  }
  return scores;
}

void PreferenceHead::add_gradients(Run& run, const Pass& pass, const std::vector<PairLoss>& pairs) {
  const int parts = context_ == nullptr ? 1 : context_->size;
  // A token's loss is minus its log-probability.
  const double scale = -static_cast<double>(2 * pass.y.dim(1) * parts);
  std::vector<double> scales;
  for (const PairLoss& pair : pairs) {
    scales.push_back(scale * pair.first_slope);
    scales.push_back(scale * pair.second_slope);
  }
  // Ranks that share products have parts of x that are no sequences.
  if (auto* shared = dynamic_cast<VocabularyCrossEntropy*>(inner_.get())) {
    return shared->forward_scaled(run, pass, scales);
  }
  for (std::int64_t b = 0; b < pass.x.dim(0); ++b) {
    Run scaled = run;
    scaled.loss_scale *= scales[static_cast<std::size_t>(b)];
    const auto row = [b](const Tensor& all) { return all.rows(b, b + 1); };
    Batch batch = *pass.batch;
    batch.tokens = row(batch.tokens);
    batch.targets = row(batch.targets);
    if (batch.positions.defined()) batch.positions = row(batch.positions);
    batch.first_sample += b;
    const Tensor kept[] = {row(pass.kept[0])};
    Pass part = pass;
    part.x = row(pass.x);
    part.y = row(pass.y);
    part.kept = kept;
    part.batch = &batch;
    inner_->forward(scaled, part);
  }
}

void PreferenceHead::report(const Pass& pass, const std::vector<PairLoss>& pairs) const {
  // Ranks that share sequences add up what they report.
  const bool writes = context_ == nullptr || context_->rank == 0;
  const std::vector<PairLoss> reported = writes ? pairs : std::vector<PairLoss>(pairs.size());
  if (pass.y.dtype() == Dtype::kF64) {
    write_on_host<double>(
        pass.y, [&](std::span<double> y) { write_pairs(y, length_of(pass.y), reported); });
  } else {
    write_on_host<float>(pass.y,
                         [&](std::span<float> y) { write_pairs(y, length_of(pass.y), reported); });
  }
}

void use_preferences(Model& model, const PreferenceOptions& options,
                     std::shared_ptr<const PreferenceSource> source) {
  std::unique_ptr<Layer>& head = model.stages.back();
  head = std::make_unique<PreferenceHead>(std::move(head), options, model.context.get(),
                                          std::move(source));
}

}  // namespace atl::nn
