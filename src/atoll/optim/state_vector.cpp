#include "atoll/optim/state_vector.h"

#include <algorithm>

namespace atl::optim {

namespace {

// Whether `next` follows `last` in the flat vector and wherever their elements lie.
bool touch(const ParamRange& last, const ParamRange& next) {
  return last.begin + last.count == next.begin &&
         last.in_values() + last.count == next.in_values() &&
         last.in_grads() + last.count == next.in_grads();
}

}  // namespace

std::vector<ParamRange> joined(std::span<const ParamRange> ranges, bool across_decay) {
  std::vector<ParamRange> result;
  for (const ParamRange& range : ranges) {
    ParamRange* last = result.empty() ? nullptr : &result.back();
    const auto alike = [&] {
      return last->decay == range.decay && last->lr_scale == range.lr_scale &&
             last->in_draws() + last->count == range.in_draws();
    };
    if (last != nullptr && touch(*last, range) && (across_decay || alike())) {
      last->count += range.count;
    } else {
      result.push_back({.begin = range.begin,
                        .count = range.count,
                        .decay = range.decay,
                        .lr_scale = range.lr_scale,
                        .value_begin = range.value_begin,
                        .grad_begin = range.grad_begin,
                        .draw_begin = range.draw_begin});
    }
  }
  return result;
}

StateVector::StateVector(std::string name, Dtype dtype, std::span<const ParamRange> ranges)
    : name_(std::move(name)), dtype_(dtype), pieces_(joined(ranges, /*across_decay=*/true)) {
  for (const ParamRange& piece : pieces_) {
    offsets_.push_back(size_);
    size_ += piece.count;
  }
}

void StateVector::request(MemoryPlan& plan) {
  request_ = plan.request_forever(name_, "optimizer", Spec{dtype_, {size_}}.bytes());
}

void StateVector::bind(const Arena& arena) {
  memory_ = arena.tensor(request_, {dtype_, {size_}});
}

Tensor StateVector::of(const ParamRange& range) const {
  const auto after =
      std::upper_bound(pieces_.begin(), pieces_.end(), range.begin,
                       [](std::int64_t begin, const ParamRange& p) { return begin < p.begin; });
  ATOLL_CHECK(after != pieces_.begin(), "{}: no state for element {}", name_, range.begin);
  const auto number = static_cast<std::size_t>(after - pieces_.begin() - 1);
  const ParamRange& piece = pieces_[number];
  ATOLL_CHECK(range.begin + range.count <= piece.begin + piece.count,
              "{}: no state for elements {} to {}", name_, range.begin, range.begin + range.count);
  const std::int64_t at = offsets_[number] + range.begin - piece.begin;
  return memory_.rows(at, at + range.count);
}

void StateVector::append_to(std::vector<StateTensor>& state) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    state.push_back(
        {name_, pieces_[i].begin, memory_.rows(offsets_[i], offsets_[i] + pieces_[i].count)});
  }
}

}  // namespace atl::optim
