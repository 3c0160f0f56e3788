#include <optional>

#include "atoll/base/error.h"
#include "atoll/rl/pattern.h"
#include "atoll/rl/rewards.h"

namespace atl::rl {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Digits with commas between thousands: "1,234,567".
bool has_thousands(std::string_view whole) {
  const std::size_t first = whole.find(',');
  if (first == 0 || first > 3) return false;
  for (std::size_t at = first; at < whole.size(); at += 4) {
    if (whole[at] != ',' || whole.size() - at < 4) return false;
    for (std::size_t i = 1; i < 4; ++i) {
      if (!is_digit(whole[at + i])) return false;
    }
  }
  return true;
}

// A decimal number in one form; nothing for what is none.
std::optional<std::string> normal_number(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  bool is_negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    is_negative = text.front() == '-';
    text.remove_prefix(1);
  }
  if (text.starts_with('$')) text.remove_prefix(1);
  if (text.ends_with('%')) text.remove_suffix(1);
  const std::size_t point = text.find('.');
  std::string whole(text.substr(0, point));
  std::string fraction(point == std::string_view::npos ? "" : text.substr(point + 1));
  if (whole.find(',') != std::string::npos) {
    if (!has_thousands(whole)) return std::nullopt;
    std::erase(whole, ',');
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  for (const std::string& digits : {whole, fraction}) {
    for (const char c : digits) {
      if (!is_digit(c)) return std::nullopt;
    }
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  if (whole.empty()) whole.push_back('0');
  const std::string number = fraction.empty() ? whole : fmt::format("{}.{}", whole, fraction);
  return is_negative && number != "0" ? fmt::format("-{}", number) : number;
}

class AnswerReward final : public Reward {
 public:
  explicit AnswerReward(const std::string& pattern) {
    if (!pattern.empty()) pattern_.emplace(pattern, "rl.answer");
  }
  std::string_view name() const override { return "answer"; }
  double of(const Rewarded& completion) const override {
    const std::string expected = normal_answer(marked_answer(*completion.prompt->answer));
    std::optional<std::string> found;
    if (pattern_) {
      found = pattern_->last_match(completion.text);
    } else {
      found = std::string(marked_answer(completion.text));
    }
    return found && normal_answer(*found) == expected ? 1 : 0;
  }

 private:
  std::optional<Pattern> pattern_;
};

}  // namespace

std::string normal_answer(std::string_view answer) {
  const std::string_view text = trimmed(answer);
  return normal_number(text).value_or(std::string(text));
}

std::string_view marked_answer(std::string_view text) {
  constexpr std::string_view kMark = "####";
  const std::size_t at = text.rfind(kMark);
  if (at == std::string_view::npos) return text;
  const std::string_view rest = text.substr(at + kMark.size());
  return rest.substr(0, rest.find('\n'));
}

std::unique_ptr<Reward> answer_reward(const std::string& pattern, const std::vector<Prompt>& rows) {
  for (const Prompt& row : rows) {
    if (row.answer) continue;
    throw user_error(
        "{} has no \"answer\", which rl.rewards = answer compares completions with; add it, or "
        "choose another reward",
        row.origin);
  }
  return std::make_unique<AnswerReward>(pattern);
}

}  // namespace atl::rl
