#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/nn/head.h"
#include "atoll/nn/layer.h"

namespace atl::nn {

/// Rows of a token embedding that are trained while its table is frozen: PEFT's
/// trainable_token_indices. They stand in place of the table's.
struct TrainedRows {
  Param rows;                        ///< (tokens, C)
  std::vector<std::int64_t> tokens;  ///< whose rows these are
  std::vector<std::int32_t> slots;   ///< of each token of the vocabulary: its row, or -1
};

/// A token embedding, whatever layer that is, with trained rows:
/// y[t] = scale rows[slot of x[t]] where the token has one, plus its position's row where there are
/// such. x: i32 (B, T)  y: (B, T, C). On a CPU.
class TrainedTokens final : public Layer {
 public:
  /// `positions`: the learned positions that `inner` adds, which outlive this; null: none. `scale`:
  /// what `inner` multiplies the table's rows by.
  TrainedTokens(std::unique_ptr<Layer> inner, TrainedRows rows, double scale,
                const Param* positions);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  void backward_weight(Run& run, const Pass& pass) override;
  /// The inner layer's parameters come first.
  void visit(ParamVisitor& visitor) override;

  /// For a head that shares the embedding.
  TrainedRows& rows() { return rows_; }

 private:
  std::unique_ptr<Layer> inner_;
  TrainedRows rows_;
  double scale_;
  const Param* positions_;
};

/// A head that shares a TrainedTokens' table and rows, with its loss: as LinearCrossEntropy it
/// never has the logits of all rows, and makes the gradients in the forward pass.
/// x: (B, T, C)  y: (B, T). On a CPU.
class TrainedTokensHead final : public Layer {
 public:
  /// `inner` is a LinearCrossEntropy; `rows` outlive this.
  TrainedTokensHead(std::unique_ptr<Layer> inner, TrainedRows* rows);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  /// The inner layer's parameters come first.
  void visit(ParamVisitor& visitor) override;

 private:
  // Pieces of scratch for so many rows of x.
  struct Room {
    Tensor logits;  // (rows, V) f32 or f64, then their gradient
    Tensor own;     // of the trained tokens: (rows, tokens)
  };
  void pass_rows(Run& run, const Room& room, const Tensor& x, const Tensor& targets,
                 const Tensor& loss, const Tensor& dx);
  const Param& weight() const { return *head_->weight(); }

  std::unique_ptr<Layer> inner_;
  const LinearCrossEntropy* head_;  // inner_
  TrainedRows* rows_;
};

/// A ParamVisitor that is told of trained rows, before their parameter. A tied head tells of them
/// again.
class TrainedRowsVisitor : public ParamVisitor {
 public:
  virtual void trained_rows(const TrainedRows& rows) = 0;
};

}  // namespace atl::nn
