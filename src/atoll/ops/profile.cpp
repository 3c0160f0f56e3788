#include "atoll/ops/profile.h"

#include <algorithm>

namespace atl::ops {

OpCost cost_of(std::initializer_list<Tensor> operands, double flops) {
  OpCost cost = {.flops = flops, .shape = operands.begin()->shape()};
  for (const Tensor& operand : operands) {
    if (operand.defined()) cost.bytes += static_cast<double>(operand.spec().bytes());
  }
  return cost;
}

void OpProfile::add(std::string_view op, std::string_view implementation, const OpCost& cost,
                    std::chrono::duration<double> took) {
  const auto same = [&](const Row& row) {
    return row.op == op && row.implementation == implementation && row.cost.shape == cost.shape &&
           row.cost.bytes == cost.bytes && row.cost.flops == cost.flops;
  };
  auto row = std::find_if(rows_.begin(), rows_.end(), same);
  if (row == rows_.end()) {
    rows_.push_back({std::string(op), std::string(implementation), cost});
    row = rows_.end() - 1;
  }
  ++row->calls;
  row->seconds += took.count();
}

}  // namespace atl::ops
