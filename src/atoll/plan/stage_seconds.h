#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/plan/figures.h"

namespace atl::plan {

/// The part of a model's products that one of `tensor` ranks has: heads, MLP and vocabulary
/// divided.
nn::ModelConfig part_of(const nn::ModelConfig& model, int tensor);

/// How long a rank needs for one micro-batch of one stage while all ranks of its host are at work;
/// what ranks send each other within layers is not in it.
struct StageSeconds {
  double forward = 0;
  double input = 0;   ///< B
  double weight = 0;  ///< W
};

/// How often the ranks that share products gather or sum all rows of a micro-batch, in one stage.
struct RowTransfers {
  int forward_gathers = 0, forward_sums = 0;
  int input_gathers = 0, input_sums = 0;
  int weight_gathers = 0;
};

/// What a rank sends for one micro-batch in one stage to the ranks that have other parts of its
/// sequences.
struct ContextBytes {
  double forward = 0;
  double input = 0;
};

/// The same, to the ranks that have other experts.
struct ExpertBytes {
  double forward = 0;
  double input = 0;
  double weight = 0;
};

/// The stages of a model as one rank of a tensor and a context group has them, without memory.
class StageModel {
 public:
  StageModel(const nn::ModelConfig& config, const nn::BuildOptions& build, std::int64_t context);

  const nn::Model& model() const { return *model_; }
  std::size_t num_stages() const { return model_->stages.size(); }
  /// Seconds of each stage for micro-batches of so many sequences: the sum of their ops, times
  /// Figures::layer_factor.
  std::vector<StageSeconds> stages(const Figures& figures, std::int64_t micro_batch) const;
  std::vector<RowTransfers> transfers() const;
  /// Bytes that this rank sends in each stage around attention, to the other ranks of its context
  /// group: docs/context-parallel.md.
  std::vector<ContextBytes> context_bytes(std::int64_t micro_batch) const;
  /// Bytes that this rank sends in each stage around experts: docs/expert-parallel.md.
  std::vector<ExpertBytes> expert_bytes(std::int64_t micro_batch) const;
  /// Elements of all trained parameters whose gradients ranks with other experts sum.
  double elements_beside_experts() const { return elements_beside_experts_; }
  /// Elements of each stage's trained parameters. A head that shares the embedding's has none of
  /// its own.
  std::span<const double> elements() const { return elements_; }
  /// Bytes of one micro-batch's residual stream, of all rows that the tensor group has.
  double edge_bytes(std::int64_t micro_batch) const;
  std::int64_t context() const { return context_; }

 private:
  bool is_block(std::size_t stage) const;
  bool has_experts(std::size_t stage) const;

  std::unique_ptr<nn::Model> model_;
  std::int64_t context_;
  std::vector<double> elements_;
  double elements_beside_experts_ = 0;
};

}  // namespace atl::plan
