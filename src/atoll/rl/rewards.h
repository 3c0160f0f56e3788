#pragma once

// What a completion earns: by its answer, its form, or a program.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/rl/prompts.h"
#include "atoll/train/config/config.h"

namespace atl::rl {

/// A completion that is to be rewarded.
struct Rewarded {
  const Prompt* prompt = nullptr;
  std::string text;       ///< without what ends it
  bool is_whole = false;  ///< it ended by itself, not by its length
};

/// One kind of reward. Any number of threads may ask one at once.
class Reward {
 public:
  virtual ~Reward() = default;
  /// As rl.rewards has it.
  virtual std::string_view name() const = 0;
  /// What the completion earns; finite. A pure function of it, unless a program is at work.
  virtual double of(const Rewarded& completion) const = 0;
};

/// 1 where the answer of the completion is the row's "answer", else 0. `pattern`: rl.answer.
/// Throws Error(kUser) naming the row for one without an answer.
std::unique_ptr<Reward> answer_reward(const std::string& pattern, const std::vector<Prompt>& rows);
/// 1 where the completion matches rl.regex, else 0.
std::unique_ptr<Reward> regex_reward(const std::string& pattern);
/// 1 where the completion is JSON that the schema in this file accepts, else 0. Members come in the
/// schema's order, as atoll's own constrained answers have them; white space does not matter.
std::unique_ptr<Reward> schema_reward(const std::string& file);
/// What rl.program prints for the completion; 0 where it fails, which is told once for each way.
std::unique_ptr<Reward> program_reward(const train::RlSettings& settings);

/// Those of rl.rewards, in their order.
std::vector<std::unique_ptr<Reward>> make_rewards(const train::RlSettings& settings,
                                                  const std::vector<Prompt>& rows);

/// What answers are compared by: without white space round them; numbers without a currency sign,
/// a percent sign, commas between thousands, a final full stop, and zeros that say nothing.
std::string normal_answer(std::string_view answer);
/// What follows the last "####" of a text, up to the end of its line; all of it where there is
/// none.
std::string_view marked_answer(std::string_view text);

}  // namespace atl::rl
