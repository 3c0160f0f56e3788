#pragma once

// The layers that stand between work on rows and work on heads or columns when ranks share each
// product (Shoeybi et al. 2019, "Megatron-LM"; Korthikanti et al. 2022, "Reducing activation
// recomputation", for the rows). Builders insert them; the layers around them do not know.
//
// With t ranks on the axis, rank r has rows [r B T / t, (r + 1) B T / t) of what would be (B, T, C)
// alone, as a tensor of shape (B, T / t, C); t must divide T.

#include <span>

#include "atoll/nn/layer.h"
#include "atoll/ops/embedding/vocabulary_part.h"

namespace atl::nn {

/// Each rank's rows, `mine`, one after the other in `all`.  mine: (R / t, ...)  all: (R, ...)
void gather_rows(Run& run, Axis& axis, const Tensor& mine, const Tensor& all);

/// Each rank's rows to all rows. B: the sum over ranks of each one's gradient, each its rows.
/// x: (B, T / t, C)  y: (B, T, C)
class GatherRows final : public Layer {
 public:
  /// `axis` must outlive the layer.
  explicit GatherRows(Axis* axis) : axis_(axis) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;

 private:
  Axis* axis_;
};

/// The sum over ranks of each one's x, each its rows. B: each rank's rows to all rows.
/// x: (B, T, C)  y: (B, T / t, C)
class ScatterSum final : public Layer {
 public:
  explicit ScatterSum(Axis* axis) : axis_(axis) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;

 private:
  Axis* axis_;
};

/// y = x + bias: the bias of a product whose terms ranks share, once these are summed.
/// x, y: (..., C)
class AddBias final : public Layer {
 public:
  explicit AddBias(Param bias) : bias_(std::move(bias)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override { visitor.param(bias_); }

 private:
  Param bias_;
};

/// Embedding whose table's rows ranks share. Each looks up its own tokens; a sum brings each rank
/// its rows, to which it adds learned positions when the model has them.
/// x: i32 (B, T)  y: (B, T / t, C)  table: (part.size, C)  positions: (P, C).
class VocabularyEmbedding final : public Layer {
 public:
  /// `positions` with an empty name means none.
  VocabularyEmbedding(Axis* axis, ops::VocabularyPart part, Param table, Param positions = {});

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& /*run*/, const Pass& /*pass*/) override {}  // tokens have no gradient
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

  /// For a head that shares the table.
  Param& table() { return table_; }

 private:
  bool has_positions() const { return !positions_.name.empty(); }
  /// The positions of this rank's rows, which y, or dy, has: i32 (B, T / t), off the scratch.
  Tensor take_positions(Run& run, const Pass& pass, const Tensor& y) const;

  Axis* axis_;
  ops::VocabularyPart part_;
  Param table_;
  Param positions_;
};

/// LinearCrossEntropy whose weight's rows ranks share: no rank has the logits of the whole
/// vocabulary, and of a chunk of rows three numbers a row and rank are gathered.
/// x: (B, T / t, C)  y: (B, T), the same on all ranks.
class VocabularyCrossEntropy final : public Layer {
 public:
  /// `softcap`: logits go through ops::softcap_forward; 0: they do not. `device`: whose memory is
  /// planned. With an axis of one rank the part is the whole vocabulary.
  VocabularyCrossEntropy(Axis* axis, ops::VocabularyPart part, double softcap, Param weight,
                         DeviceKind device = DeviceKind::kCpu);
  /// A head that shares the embedding's table, which must outlive it.
  VocabularyCrossEntropy(Axis* axis, ops::VocabularyPart part, double softcap, Param* tied,
                         DeviceKind device = DeviceKind::kCpu)
      : axis_(axis), part_(part), softcap_(softcap), device_(device), weight_(tied) {}
  VocabularyCrossEntropy(const VocabularyCrossEntropy&) = delete;
  VocabularyCrossEntropy& operator=(const VocabularyCrossEntropy&) = delete;

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override { forward_scaled(run, pass, {}); }
  /// The same where the gradient of sequence b has the factor scales[b] beside Run::loss_scale.
  void forward_scaled(Run& run, const Pass& pass, std::span<const double> scales);
  void backward_input(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override { visitor.param(*weight_); }

  /// out = x W^T over the whole vocabulary, capped, the same on all ranks.  x: (R, C), the same on
  /// all ranks  out: f32 (R, V). For generation; needs logits_scratch_bytes of scratch.
  void logits(Run& run, Tensor x, Tensor out) const;
  std::size_t logits_scratch_bytes(const Spec& x) const;

 private:
  struct Chunk;
  void run_chunk(Run& run, const Chunk& chunk) const;

  Axis* axis_;
  ops::VocabularyPart part_;
  double softcap_;
  DeviceKind device_;
  Param own_;
  Param* weight_;
};

}  // namespace atl::nn
