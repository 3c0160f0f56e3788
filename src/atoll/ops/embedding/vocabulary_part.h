#pragma once

// What a rank does that holds some rows of the token embedding and of the head, beside ranks that
// hold the others (Shoeybi et al. 2019, "Megatron-LM", section 3; Narayanan et al. 2021).

#include "atoll/ops/run.h"

namespace atl::ops {

/// Tokens [first, first + size) of a vocabulary of `total`.
struct VocabularyPart {
  std::int64_t first = 0;
  std::int64_t size = 0;
  std::int64_t total = 0;

  bool contains(std::int64_t token) const { return token >= first && token < first + size; }
};

/// local[i] = tokens[i] - first for a token of the part, else 0.  tokens, local: i32, of one size.
/// Throws Error(kDamaged) naming the first token outside [0, total).
void local_tokens(Run& run, const VocabularyPart& part, Tensor tokens, Tensor local);
/// Row i of y becomes 0 where tokens[i] is not of the part.  tokens: i32 (R)  y: (R, C).
void clear_foreign_rows(Run& run, const VocabularyPart& part, Tensor tokens, Tensor y);

/// dtable[tokens[i] - first] += dy[i] where tokens[i] is of the part, in the order of rows.
/// tokens: i32 (R)  dy: (R, C)  dtable: (part.size, C), in dy's compute dtype. On a GPU it needs
/// embedding_backward_scratch_bytes of scratch.
void embedding_part_backward(Run& run, const VocabularyPart& part, Tensor tokens, Tensor dy,
                             Tensor dtable);

/// to[i] = the position of row first_row + i: of `positions`, i32 (B, T), or, where these are
/// undefined, its place in its sequence of T rows.  to: i32.
void local_positions(Run& run, Tensor positions, std::int64_t rows_per_sequence,
                     std::int64_t first_row, Tensor to);

/// Numbers of a row's softmax over one part.
enum SoftmaxStatistic : std::int64_t {
  kMaxLogit,     ///< the largest logit m
  kSumExp,       ///< the sum of exp(logit - m)
  kTargetLogit,  ///< the target's logit, or 0 where the target is of another part
  kNumSoftmaxStatistics,
};

/// The first half of a cross-entropy whose vocabulary ranks share: logits become exp(logit - m).
/// logits: f32 or f64 (R, part.size)  targets: i32 (R)  statistics: f64 (R, 3). A row with
/// kIgnoreTarget has statistics 0. Throws Error(kDamaged) for a target outside [0, total).
void softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                  Tensor statistics);
/// The second half, once each rank has all statistics: f64 (P, R, 3), in the order of the parts,
/// in which they are added. loss: (R), the negative log-likelihood in nats, the same bits on all
/// ranks. With `gradient`, exps, which softmax_part made of the logits, become
/// factor * run.loss_scale * d(loss)/d(logit); `index`: which of the P parts this is.
void cross_entropy_part(Run& run, const VocabularyPart& part, int index, double factor,
                        Tensor statistics, Tensor targets, Tensor exps, Tensor loss, bool gradient);

}  // namespace atl::ops
