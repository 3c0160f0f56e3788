#include "atoll/rl/rewards.h"

#include "atoll/base/check.h"
#include "atoll/rl/pattern.h"

namespace atl::rl {

namespace {

class RegexReward final : public Reward {
 public:
  explicit RegexReward(const std::string& pattern) : pattern_(pattern, "rl.regex") {}
  std::string_view name() const override { return "regex"; }
  double of(const Rewarded& completion) const override {
    return pattern_.matches(completion.text) ? 1 : 0;
  }

 private:
  Pattern pattern_;
};

}  // namespace

std::unique_ptr<Reward> regex_reward(const std::string& pattern) {
  return std::make_unique<RegexReward>(pattern);
}

std::vector<std::unique_ptr<Reward>> make_rewards(const train::RlSettings& settings,
                                                  const std::vector<Prompt>& rows) {
  std::vector<std::unique_ptr<Reward>> rewards;
  for (const std::string& name : settings.rewards) {
    if (name == "answer") {
      rewards.push_back(answer_reward(settings.answer, rows));
    } else if (name == "regex") {
      rewards.push_back(regex_reward(settings.regex));
    } else if (name == "schema") {
      rewards.push_back(schema_reward(settings.schema));
    } else {
      ATOLL_CHECK(name == "program", "reward {}", name);
      rewards.push_back(program_reward(settings));
    }
  }
  return rewards;
}

}  // namespace atl::rl
