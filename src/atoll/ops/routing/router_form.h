#pragma once

#include <cstdint>

namespace atl::ops {

/// How a router makes choices and weights of its logits.
///
/// A score is softmax(logits) or sigmoid(logits) at an expert. A token chooses the top_k experts of
/// the largest scores, after `correction` is added to them where there is one; with groups, among
/// the experts of the groups that score best (DeepSeek-AI 2024, "DeepSeek-V2", section 2.2.2, and
/// "DeepSeek-V3", section 2.1.2). Weights are the scores of the chosen, without the correction,
/// times `scale`.
struct RouterForm {
  bool normalize = true;        ///< scores are divided by their sum over the chosen
  bool sigmoid = false;         ///< sigmoid scores; else softmax
  double scale = 1;             ///< multiplies the weights
  std::int64_t num_groups = 1;  ///< neighbours of E / num_groups experts each
  std::int64_t top_groups = 1;  ///< groups that a token chooses among
  /// The score of a group is the sum of so many of its experts' largest.
  std::int64_t best_of_group = 1;

  bool has_groups() const { return top_groups < num_groups; }
  /// Whether the form is softmax, the largest, and a scale of 1.
  bool is_plain() const { return !sigmoid && scale == 1 && !has_groups(); }
};

}  // namespace atl::ops
