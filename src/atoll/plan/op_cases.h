#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/ops/run.h"
#include "atoll/optim/optimizer.h"

namespace atl::plan {

/// One call of an op on operands of a size that a model has.
struct OpCase {
  /// What bounds it: arithmetic, memory that is read and written, or memory that is read.
  enum class Bound { kArithmetic, kCopying, kReading };

  std::string name;  ///< "mlp_up/forward"
  Bound bound = Bound::kArithmetic;
  double amount = 0;  ///< of a call: floating-point operations, or bytes, each read or written once
  /// What tells it from other calls of the name: rows, columns and inner length of a product;
  /// sequences, context and width of attention; else rows and width.
  std::array<std::int64_t, 3> sizes = {};
  /// Makes the operands, which the call that it returns owns. The run's stream must outlive it.
  std::function<std::function<void()>(const Run& run)> prepare;
};

/// The sizes that beside the model's decide how large operands are.
struct OpSizes {
  std::int64_t sequences = 1;  ///< of a micro-batch
  std::int64_t context = 1024;
  Dtype dtype = Dtype::kF32;      ///< of weights and activations: f32 or bf16
  std::int64_t expert_ranks = 1;  ///< whose tokens come to one expert

  std::int64_t tokens() const { return sequences * context; }
};

/// The ops of one block and of the head in training; those of norms on `row_ranks` times fewer
/// rows, where so many ranks share them. Where the model has experts, those of one expert, with an
/// even share of the tokens' choices, beside those of a plain MLP where some block has one.
std::vector<OpCase> training_op_cases(const nn::ModelConfig& config, const OpSizes& sizes,
                                      std::int64_t row_ranks = 1);
/// One product a b^T of `rows` x `inner` and `columns` x `inner`, of random numbers.
OpCase product_op_case(const std::string& name, Dtype dtype, std::int64_t rows,
                       std::int64_t columns, std::int64_t inner);
/// What a layer of experts does as a GPU has it: its router, rows of tokens that go to experts and
/// back, and the products of all experts at once, of random choices. The model has experts.
std::vector<OpCase> expert_op_cases(const nn::ModelConfig& config, const OpSizes& sizes);
/// Those of attention alone.
std::vector<OpCase> attention_op_cases(const nn::ModelConfig& config, const OpSizes& sizes);
/// The optimizers, on so many elements.
std::vector<OpCase> optimizer_op_cases(const nn::ModelConfig& config, Dtype dtype,
                                       std::int64_t elements);
/// Whether that op is what an update of this optimizer takes: its name is the kind's, or has it
/// before a slash.
bool is_update_of(const OpCase& op, const optim::OptimizerOptions& optimizer);
/// As many as optimizers are measured on at most: far more than a cache holds.
inline constexpr std::int64_t kOptimizerElements = 25'000'000;
/// These, and a generated token's.
std::vector<OpCase> op_cases(const nn::ModelConfig& config, const OpSizes& sizes);

}  // namespace atl::plan
