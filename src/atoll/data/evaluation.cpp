#include "atoll/data/evaluation.h"

#include <algorithm>
#include <span>

#include "atoll/base/check.h"

namespace atl::data {

namespace {

std::int64_t in_order(std::int64_t place) {
  return place;
}

}  // namespace

EvaluationBatches::EvaluationBatches(const TokenSource& source, const EvaluationOptions& options)
    : source_(source), options_(options) {
  if (options.micro_batch < 1 || options.context < 1 || options.max_targets < 0) {
    throw user_error("evaluation needs a micro_batch ({}) and a context ({}) of at least 1",
                     options.micro_batch, options.context);
  }
  if (source.num_tokens() < 2) {
    throw user_error(
        "{} has {} tokens and evaluation needs at least 2; hold out more text (data.held_out)",
        source.name(), source.num_tokens());
  }
  num_windows_ = (source.num_tokens() - 1 + options.context - 1) / options.context;
  if (options.packing == Packing::kDocuments) {
    documents_ = std::make_unique<DocumentTable>(source);
    rows_ = std::make_unique<PackedRows>(*documents_, options.context, in_order);
    num_windows_ = rows_->size();
  }
  const auto size = static_cast<std::size_t>(options.micro_batch * options.context);
  tokens_.resize(size);
  targets_.resize(size);
  if (options.packing != Packing::kStream) positions_.resize(size);

  take_windows();
  if (num_targets_ == 0) {
    throw user_error(
        "none of the {} tokens of {} to evaluate has a loss; hold out more text (data.held_out)",
        source.num_tokens(), source.name());
  }
}

void EvaluationBatches::take_windows() {
  const std::int64_t wanted = options_.max_targets;
  if (options_.packing == Packing::kStream && !source_.has_mask()) {
    if (wanted > 0) {
      num_windows_ = std::min(num_windows_, 1 + (wanted - 1) / options_.context);
    }
    num_targets_ = std::min(source_.num_tokens() - 1, num_windows_ * options_.context);
    return;
  }
  for (std::int64_t window = 0; window < num_windows_; ++window) {
    cut(window);
    num_targets_ += count_targets(source_, scratch_);
    if (wanted > 0 && num_targets_ >= wanted) num_windows_ = window + 1;
  }
}

std::int64_t EvaluationBatches::num_batches() const {
  return (num_windows_ + options_.micro_batch - 1) / options_.micro_batch;
}

void EvaluationBatches::cut(std::int64_t window) {
  if (rows_) {
    rows_->cut(window, *documents_, in_order, scratch_.segments);
    return;
  }
  const std::int64_t first = window * options_.context;
  const std::int64_t size = std::min(options_.context, source_.num_tokens() - 1 - first);
  cut_window(source_, first, size, options_.packing, scratch_);
}

std::optional<Batch> EvaluationBatches::next() {
  if (next_window_ >= num_windows_) return std::nullopt;
  const auto T = static_cast<std::size_t>(options_.context);
  const std::int64_t first = next_window_;
  for (std::int64_t i = 0; i < options_.micro_batch; ++i) {
    const auto row = [&, at = static_cast<std::size_t>(i) * T](std::vector<std::int32_t>& part) {
      return part.empty() ? std::span<std::int32_t>() : std::span(part).subspan(at, T);
    };
    if (first + i < num_windows_) {
      cut(first + i);
    } else {
      scratch_.segments.clear();  // a row of nothing
    }
    fill_row(source_, {row(tokens_), row(targets_), row(positions_)}, scratch_);
  }
  next_window_ = std::min(first + options_.micro_batch, num_windows_);
  const Spec spec = {Dtype::kI32, {options_.micro_batch, options_.context}};
  Batch batch = {{tokens_.data(), spec}, {targets_.data(), spec}, first};
  if (!positions_.empty()) batch.positions = {positions_.data(), spec};
  return batch;
}

}  // namespace atl::data
