#include "atoll/data/evaluation.h"

#include <algorithm>
#include <span>

#include "atoll/base/check.h"

namespace atl::data {

EvaluationBatches::EvaluationBatches(const TokenSource& source, const EvaluationOptions& options)
    : source_(source), options_(options) {
  if (options.micro_batch < 1 || options.context < 1 || options.max_windows < 0) {
    throw user_error("evaluation needs a micro_batch ({}) and a context ({}) of at least 1",
                     options.micro_batch, options.context);
  }
  if (source.num_tokens() < 2) {
    throw user_error("{} has {} tokens and evaluation needs at least 2; hold out more text",
                     source.name(), source.num_tokens());
  }
  num_windows_ = (source.num_tokens() - 1 + options.context - 1) / options.context;
  if (options.max_windows > 0) num_windows_ = std::min(num_windows_, options.max_windows);
  const auto size = static_cast<std::size_t>(options.micro_batch * options.context);
  window_.resize(static_cast<std::size_t>(options.context) + 1);
  tokens_.resize(size);
  targets_.resize(size);
}

std::int64_t EvaluationBatches::num_batches() const {
  return (num_windows_ + options_.micro_batch - 1) / options_.micro_batch;
}

std::int64_t EvaluationBatches::num_targets() const {
  return std::min(source_.num_tokens() - 1, num_windows_ * options_.context);
}

std::optional<Batch> EvaluationBatches::next() {
  if (next_window_ >= num_windows_) return std::nullopt;
  const std::int64_t T = options_.context;
  const std::int64_t first = next_window_;
  const std::int64_t end = std::min(first + options_.micro_batch, num_windows_);
  std::fill(tokens_.begin(), tokens_.end(), 0);
  std::fill(targets_.begin(), targets_.end(), kIgnoreTarget);
  for (std::int64_t window = first; window < end; ++window) {
    const std::int64_t row = (window - first) * T;
    const std::int64_t count = std::min(T, source_.num_tokens() - 1 - window * T);
    source_.copy(window * T, std::span(window_).first(static_cast<std::size_t>(count) + 1));
    std::copy_n(window_.begin(), count, tokens_.begin() + row);
    std::copy_n(window_.begin() + 1, count, targets_.begin() + row);
  }
  next_window_ = end;
  const Spec spec = {Dtype::kI32, {options_.micro_batch, T}};
  return Batch{{tokens_.data(), spec}, {targets_.data(), spec}, first};
}

}  // namespace atl::data
