#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace atl::serve {

/// How many rows a step may have.
struct StepBudget {
  std::int64_t rows = 128;  ///< at most
  /// Rows of prompts while answers are being generated: bounds how much a prompt delays each token
  /// of an answer.
  std::int64_t prompt_rows_beside_answers = 32;
};

/// How many of its tokens each sequence takes through the next step. `pending`: how many it has
/// left, in the order of arrival; `answers`: whether it is an answer, which has one and never
/// waits. Prompts share what is left, the same for each but what one does not need.
std::vector<std::int64_t> step_shares(std::span<const std::int64_t> pending,
                                      const std::vector<bool>& answers, const StepBudget& budget);

}  // namespace atl::serve
