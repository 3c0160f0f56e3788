#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

/// The final Linear and its cross-entropy in one sweep over chunks of rows: the (R, V) logits never
/// exist as a whole, and each chunk's are used for the loss and both gradients while they are hot.
///
/// x, dx: f32, f64 or bf16 and weight as x; loss and dweight, like the logits, in its compute
/// dtype. x: (R, C)  weight: (V, C)  targets: i32 (R), kIgnoreTarget rows have no loss and no
/// gradient. loss: (R), the negative log-likelihood in nats, unscaled. dx: (R, C) = factor *
/// run.loss_scale * d(sum of losses)/dx; dweight: (V, C) += the same for weight. Evaluation
/// leaves both undefined, a weight that is not trained the latter. Throws Error(kDamaged) for a
/// target outside [0, V). In tiles of AMX (bf16_arithmetic.h) products see the gradient of a logit
/// as the sum of two bf16, 16 bits of it. Needs linear_cross_entropy_scratch_bytes of scratch.
void linear_cross_entropy(Run& run, double factor, Tensor x, Tensor weight, Tensor targets,
                          Tensor loss, Tensor dx, Tensor dweight);
std::size_t linear_cross_entropy_scratch_bytes(const Spec& x, const Spec& weight,
                                               DeviceKind device = DeviceKind::kCpu);
/// The cross-entropy of logits that are there already, for a head whose product is another op.
/// logits: f32 (R, V)  targets: i32 (R)  loss: f32 (R). With `gradient` the logits become their
/// gradient, as linear_cross_entropy makes dx of it; without, their content is lost. On a CPU only.
/// Throws as linear_cross_entropy; needs no scratch.
void cross_entropy_of_logits(Run& run, double factor, Tensor logits, Tensor targets, Tensor loss,
                             bool gradient);
/// Rows whose logits such a head should hold at once: a function of the shape alone.
std::int64_t logits_rows(std::int64_t rows, std::int64_t vocab);
/// Rows of a head whose logits a GPU holds at once, where one takes so many bytes. A function of
/// the shape alone, as sums over rows are cut so.
std::int64_t gpu_logits_rows(std::int64_t row_bytes, std::int64_t rows);

}  // namespace atl::ops
