#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// Memory for one kind of activation of the micro-batches of a schedule. Micro-batches that do not
/// live at the same time share a slot. A slot takes memory only at the ticks at which a micro-batch
/// uses it, so no schedule takes more memory than it needs.
class ActivationSlots {
 public:
  /// No slots.
  ActivationSlots() = default;
  /// A slot has one tensor of each spec. lives[i]: the ticks at which micro-batch i uses its slot;
  /// they may overlap and come in any order. In the order of their first ticks, micro-batches take
  /// the first slot that is free: no other assignment needs fewer slots.
  ActivationSlots(std::string name, std::vector<Spec> specs, std::span<const TickSpan> lives);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  std::size_t num_slots() const { return spans_.size(); }
  /// The tensors of a micro-batch's slot, valid after bind(); empty where there are no slots.
  std::span<const Tensor> of(std::int64_t micro_batch) const;
  /// The first tensor of a micro-batch's slot; undefined where there is none.
  Tensor one(std::int64_t micro_batch) const;

 private:
  std::string name_;
  std::vector<Spec> specs_;
  std::vector<std::size_t> slot_of_;          // by micro-batch
  std::vector<std::vector<TickSpan>> spans_;  // by slot: when it is used
  std::vector<std::vector<int>> requests_;
  std::vector<std::vector<Tensor>> tensors_;
};

}  // namespace atl::parallel
