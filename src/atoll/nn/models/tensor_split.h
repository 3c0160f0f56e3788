#pragma once

// How the ranks of a tensor-parallel axis share a model's products, those of a context axis its
// sequences, and those of an expert axis its experts. With one rank everything here gives back what
// it was given, so that families build one way.

#include <memory>
#include <vector>

#include "atoll/nn/attention_core.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/model.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/token_dispatch.h"

namespace atl::nn {

/// Those of each of `size` ranks that share them: with fewer key-value heads than ranks, one.
ops::HeadLayout heads_of_rank(ops::HeadLayout heads, int size);

/// Cuts the parameters of one rank out of the whole, and puts the collectives in.
class TensorSplit {
 public:
  /// Throws Error(kUser) when the heads, the MLP, the vocabulary or the experts cannot be shared by
  /// so many.
  TensorSplit(const ModelConfig& config, const BuildOptions& options);

  /// This rank's heads. Where there are fewer key-value heads than ranks, several have the same.
  ops::HeadLayout heads() const { return heads_; }

  /// How these attend; null: as where a rank has all rows.
  std::unique_ptr<AttentionCore> attention_core() const;

  /// A norm's scale and the like, which all ranks have.
  Param all(Param param) const;
  /// Queries, keys and values of this rank's heads.
  Linear qkv(LinearParams params) const;
  /// What each head has one number of.
  Param of_heads(Param param) const;
  /// Its input is what this rank's heads give. Ranks' results are summed before `bias`, which is
  /// taken out of the Linear then, and else left empty.
  Linear heads_out(LinearParams params, Param& bias) const;
  /// This rank's share of the rows of each of `num_parts` equal parts: gate and up.
  Linear mlp_in(LinearParams params, int num_parts) const;
  Linear mlp_out(LinearParams params, Param& bias) const;
  /// The branch between the collectives that it needs.
  std::unique_ptr<Layer> branch(std::unique_ptr<Layer> inner, Param bias) const;

  /// Of a parameter that has each expert's gate and up, one below the other: this rank's experts,
  /// or its share of the rows of each.
  Param experts_in(Param stacked) const;
  /// Of one that has each expert's down: this rank's experts, or its share of the columns of each.
  /// Of a bias, which has no columns, all ranks that share products have all.
  Param experts_out(Param stacked) const;
  /// The ranks that have other parts of each sequence; null: there are none.
  Axis* sequences() const { return context_->size > 1 ? context_.get() : nullptr; }
  /// How rows come to them; null: this rank has all.
  std::unique_ptr<TokenDispatch> token_dispatch() const;

  /// An empty `weight` ties the head to the table. `softcap`: of the logits; 0: none.
  TensorEnds ends(Param table, Param positions, Param weight, double softcap = 0) const;

  /// Gives the model, which has all of its layers, the axes that these point to.
  void hand_over(Model& model);

 private:
  bool is_split() const { return axis_->size > 1; }
  /// Cuts a parameter among the ranks of all axes; `of_tensor_ranks`: what those that share
  /// products hold of it, whichever experts they have.
  Param cut(Param whole, const std::vector<Slice>& of_tensor_ranks) const;
  Linear rows(LinearParams params, const std::vector<std::vector<Slice::Rows>>& of_ranks) const;
  Linear columns(LinearParams params, std::int64_t width, Param& bias) const;
  std::vector<std::vector<Slice::Rows>> shares(std::int64_t rows, std::int64_t num_parts) const;
  std::vector<Slice> column_shares(const Param& whole, std::int64_t width) const;
  Param cut_columns(Param whole, std::int64_t width) const;
  /// Of a parameter that has the same number of rows for each expert: some experts for each rank
  /// that shares them, and of these what `of_tensor_ranks` says of all.
  Param experts(Param stacked, const std::vector<Slice>& of_tensor_ranks) const;

  std::unique_ptr<Axis> axis_;
  std::unique_ptr<Axis> kv_copies_;  // the ranks that have the same key-value heads
  std::unique_ptr<Axis> context_;
  std::unique_ptr<Axis> expert_;
  std::unique_ptr<Axis> parts_;
  ops::HeadLayout whole_heads_;
  ops::HeadLayout heads_;
  bool has_ring_;  // where ranks have parts of sequences
  DeviceKind device_;
};

}  // namespace atl::nn
