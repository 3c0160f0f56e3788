#include "atoll/rl/policy_batches.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::rl {

std::vector<std::int64_t> StepShape::samples() const {
  std::vector<std::int64_t> numbers;
  for (const std::int64_t micro : micro_batches) {
    for (std::int64_t i = 0; i < micro_batch; ++i) numbers.push_back(micro * micro_batch + i);
  }
  return numbers;
}

PolicyBatches::PolicyBatches(StepShape shape) : shape_(std::move(shape)) {
  const std::size_t size = shape_.micro_batches.size() * rows_of_micro_batch();
  tokens_.resize(size);
  targets_.resize(size);
  facts_.resize(size);
  outcomes_.resize(size);
}

void PolicyBatches::fill(const Rollout& rollout, const std::vector<Prompt>& prompts,
                         std::span<const double> advantages, std::int64_t step_tokens) {
  ATOLL_CHECK(
      rollout.samples.size() == advantages.size() &&
          rollout.samples.size() * static_cast<std::size_t>(shape_.context) == tokens_.size(),
      "{} samples with {} advantages", rollout.samples.size(), advantages.size());
  step_ = rollout.step;
  step_tokens_ = step_tokens;
  next_ = 0;
  std::ranges::fill(tokens_, 0);
  std::ranges::fill(targets_, kIgnoreTarget);
  for (std::size_t row = 0; row < rollout.samples.size(); ++row) {
    const Sample& sample = rollout.samples[row];
    fill_row(row, sample, prompts[static_cast<std::size_t>(sample.prompt)], advantages[row]);
  }
}

void PolicyBatches::fill_row(std::size_t row, const Sample& sample, const Prompt& prompt,
                             double advantage) {
  const Completion& completion = sample.completion;
  const std::size_t first = row * static_cast<std::size_t>(shape_.context);
  const std::size_t before = prompt.tokens.size();
  ATOLL_CHECK(before + completion.tokens.size() <= static_cast<std::size_t>(shape_.context),
              "{} and {} tokens", before, completion.tokens.size());
  std::ranges::copy(prompt.tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(first));
  std::ranges::copy(completion.tokens,
                    tokens_.begin() + static_cast<std::ptrdiff_t>(first + before));
  for (std::size_t i = 0; i < completion.tokens.size(); ++i) {
    const std::size_t at = first + before - 1 + i;  // the place that predicts it
    targets_[at] = completion.tokens[i];
    facts_[at] = {.advantage = advantage, .sampled = completion.logprobs[i]};
    if (!sample.reference.empty()) facts_[at].reference = sample.reference[i];
  }
}

Batch PolicyBatches::next() {
  ATOLL_CHECK(next_ < shape_.micro_batches.size(), "micro-batch {}", next_);
  const std::size_t begin = next_ * rows_of_micro_batch();
  const Spec spec = {Dtype::kI32, {shape_.micro_batch, shape_.context}};
  Batch batch = {.tokens = Tensor(tokens_.data() + begin, spec),
                 .targets = Tensor(targets_.data() + begin, spec)};
  batch.first_sample = step_ * shape_.batch_size + shape_.micro_batches[next_] * shape_.micro_batch;
  batch.step_targets = step_tokens_;
  ++next_;
  return batch;
}

nn::PolicyTokens PolicyBatches::tokens(std::int64_t first_sample) {
  const std::int64_t micro = (first_sample - step_ * shape_.batch_size) / shape_.micro_batch;
  const auto at = std::ranges::find(shape_.micro_batches, micro);
  ATOLL_CHECK(at != shape_.micro_batches.end(), "sample {} in step {}", first_sample, step_);
  const std::size_t begin =
      static_cast<std::size_t>(at - shape_.micro_batches.begin()) * rows_of_micro_batch();
  return {std::span(facts_).subspan(begin, rows_of_micro_batch()),
          std::span(outcomes_).subspan(begin, rows_of_micro_batch())};
}

}  // namespace atl::rl
