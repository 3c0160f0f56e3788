#include "atoll/island/outer/state.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::island {

namespace {

std::vector<StatePart> whole_parts(const std::vector<std::size_t>& elements, int vectors) {
  std::vector<StatePart> parts;
  for (const std::size_t count : elements) {
    parts.emplace_back(static_cast<std::int64_t>(count), vectors);
  }
  return parts;
}

}  // namespace

OuterState::OuterState(const std::vector<std::size_t>& fragment_elements,
                       const OuterOptimizer& optimizer)
    : OuterState(whole_parts(fragment_elements, 1 + optimizer.num_state_vectors()), optimizer) {}

OuterState::OuterState(std::vector<StatePart> parts, const OuterOptimizer& optimizer)
    : parts_(std::move(parts)), optimizer_(optimizer), current_(parts_.size()) {
  ATOLL_CHECK(!parts_.empty(), "a model without fragments");
  for (const StatePart& part : parts_) {
    ATOLL_CHECK_EQ(part.vectors(), 1 + optimizer.num_state_vectors());
  }
}

const StatePart& OuterState::part(int fragment) const {
  return parts_.at(static_cast<std::size_t>(fragment));
}

std::size_t OuterState::elements(int fragment) const {
  return static_cast<std::size_t>(part(fragment).own().size());
}

std::size_t OuterState::values_size(int fragment) const {
  return part(fragment).size();
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

void OuterState::begin(int fragment, std::span<const float> anchor, const WholeHash& whole) {
  ATOLL_CHECK(anchor.size() == elements(fragment), "{} elements for fragment {} of {}",
              anchor.size(), fragment, elements(fragment));
  const auto state = make(fragment, 0);
  std::copy(anchor.begin(), anchor.end(), state->values.begin());
  const StateHash own = part(fragment).hash(state->values);
  state->hash = whole ? whole(own) : own;
  const std::lock_guard lock(mutex_);
  current_[static_cast<std::size_t>(fragment)] = state;
  shadow_.reset();
  unsealed_.reset();
  outer_step_ = 0;
}

StateHash OuterState::replace(int fragment, std::int64_t outer_step, std::vector<float> values,
                              const WholeHash& whole) {
  ATOLL_CHECK(values.size() == values_size(fragment), "{} values for fragment {} of {}",
              values.size(), fragment, values_size(fragment));
  const auto state = std::make_shared<FragmentState>();
  state->outer_step = outer_step;
  state->elements = elements(fragment);
  state->values = std::move(values);
  const StateHash own = part(fragment).hash(state->values);
  state->hash = whole ? whole(own) : own;
  const std::lock_guard lock(mutex_);
  current_[static_cast<std::size_t>(fragment)] = state;
  shadow_.reset();
  unsealed_.reset();
  return state->hash;
}

void OuterState::set_outer_step(std::int64_t outer_step) {
  const std::lock_guard lock(mutex_);
  outer_step_ = outer_step;
}

OuterState::Step::Step(const OuterOptimizer& optimizer, int fragment, const OuterStepInfo& info,
                       std::shared_ptr<const FragmentState> from, std::shared_ptr<FragmentState> to)
    : optimizer_(optimizer),
      fragment_(fragment),
      info_(info),
      from_(std::move(from)),
      to_(std::move(to)) {}

void OuterState::Step::add(std::size_t begin, std::span<const float> mean) {
  const std::size_t n = num_to_add();
  const std::size_t count = mean.size();
  ATOLL_CHECK(begin <= n && count <= n - begin, "elements {} to {} of {}", begin, begin + count, n);
  if (is_of_states_) {
    std::copy(mean.begin(), mean.end(), to_->values.begin() + static_cast<std::ptrdiff_t>(begin));
    num_added_ += count;
    return;
  }
  // The optimizer's vectors lie one behind the other, and so must their parts.
  const auto num_vectors = static_cast<std::size_t>(optimizer_.num_state_vectors());
  std::vector<float> state(num_vectors * count);
  const std::span<float> values(to_->values);
  for (std::size_t v = 0; v < num_vectors; ++v) {
    const auto part = from_->optimizer().subspan(v * n + begin, count);
    std::copy(part.begin(), part.end(), state.begin() + static_cast<std::ptrdiff_t>(v * count));
  }
  optimizer_.step(from_->anchor().subspan(begin, count), mean, state, values.subspan(begin, count),
                  state, info_);
  for (std::size_t v = 0; v < num_vectors; ++v) {
    std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(v * count), count,
                values.subspan((1 + v) * n + begin, count).begin());
  }
  num_added_ += count;
}

std::unique_ptr<OuterState::Step> OuterState::begin_step(int fragment, OuterStepInfo info) const {
  std::shared_ptr<const FragmentState> from = current(fragment);
  ATOLL_CHECK(from, "fragment {} has no state yet", fragment);
  const std::int64_t step = outer_step();
  // A fragment's own steps, for what the outer optimizer corrects by their number.
  info.k = step / num_fragments();
  return std::unique_ptr<Step>(
      new Step(optimizer_, fragment, info, std::move(from), make(fragment, step + 1)));
}

std::unique_ptr<OuterState::Step> OuterState::begin_mean_of_states(int fragment) const {
  std::unique_ptr<Step> step = begin_step(fragment);
  step->is_of_states_ = true;
  return step;
}

std::vector<float> OuterState::values_after(int fragment, std::span<const float> delta) const {
  if (delta.empty()) return current(fragment)->values;
  const std::unique_ptr<Step> step = begin_step(fragment);
  step->add(0, delta);
  return std::move(step->to_->values);
}

StateHash OuterState::prepare(const Step& step) {
  ATOLL_CHECK_EQ(step.num_added_.load(), step.num_to_add());
  const StatePart& own = part(step.fragment_);
  const StateHash hash = own.hash(step.to_->values);
  {
    const std::lock_guard lock(mutex_);
    unsealed_ = step.to_;
    unsealed_fragment_ = step.fragment_;
  }
  if (own.is_whole()) seal(hash);
  return hash;
}

void OuterState::seal(const StateHash& hash) {
  const std::lock_guard lock(mutex_);
  if (!unsealed_) return;  // it is sealed already
  unsealed_->hash = hash;
  shadow_ = std::move(unsealed_);
  unsealed_.reset();
  shadow_fragment_ = unsealed_fragment_;
}

StateHash OuterState::prepare(int fragment, std::span<const float> mean_delta) {
  const std::unique_ptr<Step> step = begin_step(fragment);
  step->add(0, mean_delta);
  return prepare(*step);
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
