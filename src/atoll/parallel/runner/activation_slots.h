#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// Memory in which the micro-batches of a list take turns: as many slots as live at once, each
/// there only while some micro-batch uses it. Planned so, memory is exact for any list.
class ActivationSlots {
 public:
  /// None.
  ActivationSlots() = default;
  /// A slot has one tensor of each spec. `lives`: of each micro-batch, from 0; they may overlap and
  /// come in any order. Takes the first slot that is free, by the first tick: no other choice needs
  /// fewer slots.
  ActivationSlots(std::string name, std::vector<Spec> specs, std::span<const TickSpan> lives);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  std::size_t num_slots() const { return spans_.size(); }
  /// Empty when there are none; valid after bind().
  std::span<const Tensor> of(std::int64_t micro_batch) const;
  /// The only tensor of a slot; undefined when there are none.
  Tensor one(std::int64_t micro_batch) const;

 private:
  std::string name_;
  std::vector<Spec> specs_;
  std::vector<std::size_t> slot_of_;          // by micro-batch
  std::vector<std::vector<TickSpan>> spans_;  // of each slot, when it is used
  std::vector<std::vector<int>> requests_;
  std::vector<std::vector<Tensor>> tensors_;
};

}  // namespace atl::parallel
