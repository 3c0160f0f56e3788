#include "atoll/island/outer_state.h"

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/base/hash.h"

namespace atl::island {

StateHash hash_of(std::span<const float> values) {
  const Hash128 hash = hash_bytes(values.data(), values.size_bytes());
  return {hash.high, hash.low};
}

OuterState::OuterState(std::vector<std::size_t> fragment_elements, const OuterOptimizer& optimizer)
    : elements_(std::move(fragment_elements)), optimizer_(optimizer), current_(elements_.size()) {
  ATOLL_CHECK(!elements_.empty(), "a model without fragments");
}

std::size_t OuterState::elements(int fragment) const {
  return elements_.at(static_cast<std::size_t>(fragment));
}

std::size_t OuterState::values_size(int fragment) const {
  return elements(fragment) * static_cast<std::size_t>(1 + optimizer_.num_state_vectors());
}

std::int64_t OuterState::outer_step() const {
  const std::lock_guard lock(mutex_);
  return outer_step_;
}

std::vector<StateHash> OuterState::hashes() const {
  const std::lock_guard lock(mutex_);
  std::vector<StateHash> hashes;
  for (const auto& state : current_) {
    if (state) hashes.push_back(state->hash);
  }
  return hashes;
}

std::shared_ptr<const FragmentState> OuterState::current(int fragment) const {
  const std::lock_guard lock(mutex_);
  return current_.at(static_cast<std::size_t>(fragment));
}

std::shared_ptr<FragmentState> OuterState::make(int fragment, std::int64_t outer_step) const {
  auto state = std::make_shared<FragmentState>();
  state->outer_step = outer_step;
  state->elements = elements(fragment);
  state->values.resize(values_size(fragment));
  return state;
}

void OuterState::begin(int fragment, std::span<const float> anchor) {
  ATOLL_CHECK(anchor.size() == elements(fragment), "{} elements for fragment {} of {}",
              anchor.size(), fragment, elements(fragment));
  const auto state = make(fragment, 0);
  std::copy(anchor.begin(), anchor.end(), state->values.begin());
  state->hash = hash_of(state->values);
  const std::lock_guard lock(mutex_);
  current_[static_cast<std::size_t>(fragment)] = state;
  shadow_.reset();
  outer_step_ = 0;
}

StateHash OuterState::replace(int fragment, std::int64_t outer_step, std::vector<float> values) {
  ATOLL_CHECK(values.size() == values_size(fragment), "{} values for fragment {} of {}",
              values.size(), fragment, values_size(fragment));
  const auto state = std::make_shared<FragmentState>();
  state->outer_step = outer_step;
  state->elements = elements(fragment);
  state->values = std::move(values);
  state->hash = hash_of(state->values);
  const std::lock_guard lock(mutex_);
  current_[static_cast<std::size_t>(fragment)] = state;
  shadow_.reset();
  return state->hash;
}

void OuterState::set_outer_step(std::int64_t outer_step) {
  const std::lock_guard lock(mutex_);
  outer_step_ = outer_step;
}

StateHash OuterState::prepare(int fragment, std::span<const float> mean_delta) {
  const std::shared_ptr<const FragmentState> from = current(fragment);
  ATOLL_CHECK(from, "fragment {} has no state yet", fragment);
  ATOLL_CHECK(mean_delta.size() == from->elements, "{} elements for fragment {} of {}",
              mean_delta.size(), fragment, from->elements);
  const std::int64_t step = outer_step();
  const auto to = make(fragment, step + 1);
  const std::span<float> values(to->values);
  // A fragment's own steps, for what the outer optimizer corrects by their number.
  optimizer_.step(from->anchor(), mean_delta, from->optimizer(), values.first(to->elements),
                  values.subspan(to->elements), step / num_fragments());
  to->hash = hash_of(to->values);
  const std::lock_guard lock(mutex_);
  shadow_ = to;
  shadow_fragment_ = fragment;
  return to->hash;
}

bool OuterState::swap(std::int64_t outer_step, int fragment, const StateHash& hash) {
  const std::lock_guard lock(mutex_);
  if (!shadow_ || shadow_fragment_ != fragment || shadow_->outer_step != outer_step + 1 ||
      shadow_->hash != hash) {
    return false;
  }
  current_[static_cast<std::size_t>(fragment)] = std::move(shadow_);
  shadow_.reset();
  outer_step_ = outer_step + 1;
  return true;
}

}  // namespace atl::island
