#pragma once

#include <cstddef>
#include <vector>

#include "atoll/nn/layer.h"
#include "atoll/ops/block_diagonal/block_diagonal.h"

namespace atl::nn {

/// What LoRA (Hu et al. 2021) adds to some output rows of a Linear: s (x A^T) B^T. Each block of
/// rows has factors of its own, of one rank and one scale s.
/// x: (..., in)  A: (num_blocks r, in)  B: (rows of all blocks, r)
class LowRankAdapter {
 public:
  /// `rows`: of the Linear. `magnitude`: the trained lengths of the adapted rows (DoRA), a vector;
  /// with an empty name there are none.
  LowRankAdapter(Param a, Param b, std::vector<ops::DiagonalBlock> blocks, double scale,
                 std::int64_t rows, Param magnitude = {});

  /// change = s (x A^T) B^T: (..., rows), 0 in rows that are not adapted.
  void forward(Run& run, Tensor x, Tensor change) const;
  /// dx = s (dy B) A, in place of what is there.
  void backward_input(Run& run, Tensor dy, Tensor dx) const;
  /// Adds to the gradients of A and B. The low-rank product is made again here: that costs r / rows
  /// of the layer's work, and keeps callers that fuse Linears free of tensors to carry for them.
  void backward_weight(Run& run, Tensor x, Tensor dy);
  /// change = s B A: (rows, in)
  void weight(Run& run, Tensor change) const;

  /// Of DoRA: gain as ops::dora_gain has it, of these rows; all others reset where `resets`.
  void gain(Run& run, Tensor w, Tensor change, bool resets, Tensor gain) const;
  /// Adds to the gradient of the lengths. u: the product before the gain.
  void backward_gain(Run& run, Tensor dy, Tensor u, Tensor gain);

  bool has_magnitude() const { return !magnitude_.name.empty(); }
  /// What forward(), backward_input() and backward_weight() need for an x of this spec.
  std::size_t scratch_bytes(const Spec& x, DeviceKind device) const;
  void visit(ParamVisitor& visitor);

 private:
  // B spread so that one product applies every block's: (rows, num_blocks r).
  Spec spread_spec() const;
  Tensor spread_b(Run& run) const;

  Param a_;
  Param b_;
  Param magnitude_;
  std::vector<ops::DiagonalBlock> blocks_;
  double scale_;
  std::int64_t rows_;
};

}  // namespace atl::nn
