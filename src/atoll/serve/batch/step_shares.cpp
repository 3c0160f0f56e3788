#include "atoll/serve/batch/step_shares.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::serve {

std::vector<std::int64_t> step_shares(std::span<const std::int64_t> pending,
                                      const std::vector<bool>& answers, const StepBudget& budget) {
  std::vector<std::int64_t> shares(pending.size(), 0);
  std::int64_t left = budget.rows;
  std::vector<std::size_t> prompts;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (!answers[i]) {
      prompts.push_back(i);
      continue;
    }
    shares[i] = std::min(pending[i], left);
    left -= shares[i];
  }
  if (prompts.size() < pending.size()) left = std::min(left, budget.prompt_rows_beside_answers);
  // Those that need least first: what they leave is for the others.
  std::ranges::stable_sort(prompts, {}, [&](std::size_t i) { return pending[i]; });
  for (std::size_t taken = 0; taken < prompts.size(); ++taken) {
    const auto others = static_cast<std::int64_t>(prompts.size() - taken);
    const std::int64_t share = std::min(pending[prompts[taken]], (left + others - 1) / others);
    shares[prompts[taken]] = share;
    left -= share;
  }
  return shares;
}

}  // namespace atl::serve
