#pragma once

#include <functional>
#include <string>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/ops/run.h"

namespace atl::cli {

/// One call of an op on operands of a size that a model has.
struct OpCase {
  /// What bounds it: arithmetic, memory that is read and written, or memory that is read.
  enum class Bound { kArithmetic, kCopying, kReading };

  std::string name;  ///< "mlp_up/forward"
  Bound bound = Bound::kArithmetic;
  double amount = 0;  ///< of a call: floating-point operations, or bytes, each read or written once
  /// Makes the operands, which the call that it returns owns. The run's stream must outlive it.
  std::function<std::function<void()>(const Run& run)> prepare;
};

/// The sizes that beside the model's decide how large operands are.
struct OpSizes {
  std::int64_t sequences = 1;  ///< of a micro-batch
  std::int64_t context = 1024;
  Dtype dtype = Dtype::kF32;  ///< of weights and activations: f32 or bf16

  std::int64_t tokens() const { return sequences * context; }
};

/// The ops that a training step and a generated token of such a model spend their time in, and the
/// optimizers.
std::vector<OpCase> op_cases(const nn::ModelConfig& config, const OpSizes& sizes);

}  // namespace atl::cli
