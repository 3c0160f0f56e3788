#include "atoll/parallel/runner/activation_slots.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/check.h"

namespace atl::parallel {

ActivationSlots::ActivationSlots(std::string name, std::vector<Spec> specs,
                                 std::span<const TickSpan> lives)
    : name_(std::move(name)), specs_(std::move(specs)), slot_of_(lives.size()) {
  std::vector<std::size_t> order(lives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lives[a].first < lives[b].first; });
  for (const std::size_t micro_batch : order) {
    const TickSpan& life = lives[micro_batch];
    std::size_t slot = 0;
    while (slot < spans_.size() && spans_[slot].back().last >= life.first) ++slot;
    if (slot == spans_.size()) spans_.emplace_back();
    spans_[slot].push_back(life);
    slot_of_[micro_batch] = slot;
  }
  requests_.resize(spans_.size());
  tensors_.resize(spans_.size());
}

void ActivationSlots::request(MemoryPlan& plan) {
  for (std::size_t slot = 0; slot < spans_.size(); ++slot) {
    for (const Spec& spec : specs_) {
      requests_[slot].push_back(plan.request(name_, "activations", spec.bytes(), spans_[slot]));
    }
  }
}

void ActivationSlots::bind(const Arena& arena) {
  for (std::size_t slot = 0; slot < spans_.size(); ++slot) {
    tensors_[slot].clear();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      tensors_[slot].push_back(arena.tensor(requests_[slot][i], specs_[i]));
    }
  }
}

std::span<const Tensor> ActivationSlots::of(std::int64_t micro_batch) const {
  if (slot_of_.empty()) return {};
  return tensors_[slot_of_[static_cast<std::size_t>(micro_batch)]];
}

Tensor ActivationSlots::one(std::int64_t micro_batch) const {
  const std::span<const Tensor> tensors = of(micro_batch);
  return tensors.empty() ? Tensor() : tensors.front();
}

}  // namespace atl::parallel
