#pragma once

#include "atoll/nn/layer.h"

namespace atl::nn {

/// Tokens to vectors, plus learned positions when the model has them.
/// x: i32 (B, T)  y: (B, T, C)  table: (V, C)  positions: (P, C).
class Embedding final : public Layer {
 public:
  /// `positions` with an empty name means none.
  explicit Embedding(Param table, Param positions = {})
      : table_(std::move(table)), positions_(std::move(positions)) {
    table_.is_embedding = positions_.is_embedding = true;
  }

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& /*run*/, const Pass& /*pass*/) override {}  // tokens have no gradient
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

  /// For a head that shares the table.
  Param& table() { return table_; }

 private:
  bool has_positions() const { return !positions_.name.empty(); }

  Param table_;
  Param positions_;
};

}  // namespace atl::nn
