#include "atoll/serve/task_results.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/check.h"

namespace atl::serve {

namespace {

using Json = nlohmann::ordered_json;

const char* name_of(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kStopText:
      return "stop_text";
    case AnswerEnd::kStopToken:
      return "stop_token";
    case AnswerEnd::kMaxNewTokens:
      return "max_tokens";
  }
  return "?";
}

Json header(const TaskItem& item, const EncodedItem& encoded, const char* type) {
  Json json = {{"line", item.line}, {"type", type}, {"prompt", encoded.prompt}};
  if (encoded.dropped > 0) json["dropped_tokens"] = encoded.dropped;
  return json;
}

// What a model makes may end within a character.
std::string to_line(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

double Accuracy::value() const {
  ATOLL_CHECK(count > 0);
  return static_cast<double>(correct) / static_cast<double>(count);
}

double Accuracy::standard_error() const {
  if (count < 2) return std::numeric_limits<double>::quiet_NaN();
  return std::sqrt(value() * (1 - value()) / static_cast<double>(count - 1));
}

std::string to_json(const TaskItem& item, const EncodedItem& encoded, const ChoiceScores& scores) {
  Json json = header(item, encoded, "multiple_choice");
  json["output"] = item.choices[scores.best];
  json["output_norm"] = item.choices[scores.best_per_character];
  json["expected"] = item.choices[item.answer];
  json["correct"] = scores.best == item.answer;
  json["correct_norm"] = scores.best_per_character == item.answer;
  json["scores"] = scores.log_likelihoods;
  json["scores_norm"] = scores.per_character;
  return to_line(json);
}

std::string to_json(const TaskItem& item, const EncodedItem& encoded,
                    const GeneratedAnswer& answer) {
  Json json = header(item, encoded, "exact_match");
  json["output"] = answer.output;
  json["found"] = answer.found ? Json(*answer.found) : Json(nullptr);
  json["expected"] = item.answers;
  json["correct"] = answer.correct;
  json["end"] = name_of(answer.end);
  return to_line(json);
}

std::string skipped_json(const TaskItem& item, const EncodedItem& encoded) {
  Json json = header(item, encoded, "skipped");
  json["prompt_tokens"] = encoded.context.size();
  return to_line(json);
}

}  // namespace atl::serve
