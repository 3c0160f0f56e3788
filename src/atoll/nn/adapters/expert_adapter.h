#pragma once

#include <cstdint>
#include <vector>

#include "atoll/nn/layer.h"
#include "atoll/ops/expert_factors/expert_factors.h"

namespace atl::nn {

/// What LoRA adds to one product of the E stacked experts of a block, whose rows lie together by
/// expert: y_e += s (x_e A_e^T) B_e^T. Both factors are as the PEFT library keeps those of a
/// parameter (target_parameters): A is (E r, in), the ranks of each expert one after the other, B
/// is (out, r E) there, the experts of each rank one after the other, and its transpose here.
/// x: (R, in)  y: (R, out). On a CPU.
class ExpertAdapter {
 public:
  /// Which columns of A and of the transpose of B this rank's product has.
  struct Columns {
    std::vector<std::int64_t> in, out;
  };
  ExpertAdapter(Param a, Param b, std::int64_t num_experts, double scale, Columns columns);

  /// y += s (x A^T) B^T.  offsets: where each expert's rows begin, i32 (E + 1).
  void forward(Run& run, const Tensor& x, const Tensor& offsets, const Tensor& y) const;
  /// dx += s (dy B) A.
  void backward_input(Run& run, const Tensor& dy, const Tensor& offsets, const Tensor& dx) const;
  /// Adds to the gradients of A and B.
  void backward_weight(Run& run, const Tensor& x, const Tensor& dy, const Tensor& offsets);
  /// What each of these needs for so many rows of x.
  std::size_t scratch_bytes(std::int64_t rows) const;
  void visit(ParamVisitor& visitor);

 private:
  // What a product takes, each expert's ranks together: (E r, in), and s B^T: (E r, out).
  struct Ordered {
    Tensor a, b;
  };
  Ordered take_ordered(Run& run) const;
  Spec ordered_spec(const std::vector<std::int64_t>& columns) const;
  ops::FactorOrder order_of_a() const { return {num_experts_, false, columns_.in}; }
  ops::FactorOrder order_of_b() const { return {num_experts_, true, columns_.out}; }
  std::int64_t rank() const { return a_.spec.shape.dim(0) / num_experts_; }

  Param a_;
  Param b_;
  std::int64_t num_experts_;
  double scale_;
  Columns columns_;
};

/// Of a parameter that has one product of all experts of a block, or of a rank's part of it: which
/// of the rows that a file of PEFT has of one expert this rank has, in its order. Files of gpt-oss
/// have gate and up in alternate rows.
std::vector<std::int64_t> rows_in_stack(const Param& weight, std::int64_t num_experts);

}  // namespace atl::nn
