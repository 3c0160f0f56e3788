#include "atoll/serve/task_answer.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::serve {

namespace {

std::size_t first_largest(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

bool matches(const TaskItem& item, const std::string& found, const AnswerPattern* extract) {
  return std::any_of(item.answers.begin(), item.answers.end(),
                     [&](const auto& answer) { return comparable(answer, extract) == found; });
}

}  // namespace

void AnswerOptions::validate() const {
  if (!stops) return;
  for (const std::string& stop : *stops) {
    if (stop.empty()) throw user_error("--stop is empty, and would end every answer at once");
    if (text::valid_utf8_prefix(stop) != stop.size()) throw user_error("--stop is not UTF-8");
  }
}

const std::vector<std::string>& AnswerOptions::stops_of(const EncodedItem& encoded) const {
  static const std::vector<std::string> kNothing;
  static const std::vector<std::string> kNewline = {"\n"};
  if (stops) return *stops;
  return encoded.is_chat ? kNothing : kNewline;
}

std::size_t scored_characters(std::string_view choice) {
  const std::size_t begin = text::leading_white_space(choice);
  const std::string_view counted = begin == choice.size() ? choice : choice.substr(begin);
  constexpr unsigned char kMask = 0xC0, kContinuation = 0x80;
  return static_cast<std::size_t>(std::count_if(counted.begin(), counted.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & kMask) != kContinuation;
  }));
}

ChoiceScores choice_scores(const TaskItem& item, std::vector<double> log_likelihoods) {
  ATOLL_CHECK_EQ(log_likelihoods.size(), item.choices.size());
  ChoiceScores scores = {.log_likelihoods = std::move(log_likelihoods)};
  for (std::size_t i = 0; i < item.choices.size(); ++i) {
    scores.per_character.push_back(scores.log_likelihoods[i] /
                                   static_cast<double>(scored_characters(item.choices[i])));
  }
  scores.best = first_largest(scores.log_likelihoods);
  scores.best_per_character = first_largest(scores.per_character);
  return scores;
}

AnswerText::AnswerText(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
    : decoder_(tokenizer, {.skip_special = true}), stops_(stops) {
  for (const std::string& stop : stops) longest_ = std::max(longest_, stop.size());
}

bool AnswerText::append(std::string_view piece) {
  const std::size_t from = text_.size() - std::min(text_.size(), longest_);
  text_ += piece;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, from));
  if (end == std::string::npos) return true;
  text_.resize(end);
  return false;
}

GeneratedAnswer AnswerText::finish(AnswerEnd end, const TaskItem& item,
                                   const AnswerPattern* extract) {
  GeneratedAnswer answer = {.end = end};
  if (end != AnswerEnd::kStopText) append(decoder_.finish());
  answer.output = std::move(text_);
  if (const auto found = comparable(answer.output, extract)) answer.found = *found;
  answer.correct = answer.found && matches(item, *answer.found, extract);
  return answer;
}

void check_answers(const std::vector<TaskItem>& items, const AnswerPattern& pattern,
                   const std::string& path) {
  for (const TaskItem& item : items) {
    for (const std::string& answer : item.answers) {
      const auto found = comparable(answer, &pattern);
      if (found && !found->empty()) continue;
      throw user_error("{} line {}: the pattern to extract finds nothing in its answer", path,
                       item.line);
    }
  }
}

}  // namespace atl::serve
