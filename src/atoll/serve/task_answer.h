#pragma once

// What a model has answered to an item of a task, and how it is judged.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/task.h"
#include "atoll/serve/task_encoding.h"
#include "atoll/serve/task_extract.h"
#include "atoll/text/stream_decoder.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve {

/// How answers are generated and compared.
struct AnswerOptions {
  std::int64_t max_new_tokens = 256;
  /// Texts that end an answer and are no part of it; absent: a newline, in a chat nothing.
  std::optional<std::vector<std::string>> stops;
  std::vector<std::int32_t> stop_tokens;   ///< tokens that always do; ascending
  const AnswerPattern* extract = nullptr;  ///< what of output and answer is compared; null: all
  std::function<bool()> interrupted;       ///< asked between tokens and choices; may be empty

  /// Throws Error(kUser) for a stop that is empty or not UTF-8.
  void validate() const;
  /// The texts that end the answer to such an item.
  const std::vector<std::string>& stops_of(const EncodedItem& encoded) const;
};

/// Choices' scores: the log-probability of all their tokens, given the prompt, in nats.
struct ChoiceScores {
  std::vector<double> log_likelihoods;
  std::vector<double> per_character;  ///< the same over scored_characters() of the choice
  std::size_t best = 0;               ///< the most likely choice, of equal ones the first
  std::size_t best_per_character = 0;
};

/// What ended a generated answer.
enum class AnswerEnd { kStopText, kStopToken, kMaxNewTokens };

/// A generated answer.
struct GeneratedAnswer {
  std::string output;                ///< UTF-8, before the stop; special tokens leave no text
  std::optional<std::string> found;  ///< what of it is compared; none: the pattern finds nothing
  bool correct = false;
  AnswerEnd end = AnswerEnd::kMaxNewTokens;
};

/// What an item was answered with: one of the two.
struct TaskAnswer {
  std::optional<ChoiceScores> scores;        ///< of a multiple choice
  std::optional<GeneratedAnswer> generated;  ///< of an answer to be generated
};

/// The characters (Unicode code points) of a choice that its score is divided by, as
/// lm-evaluation-harness counts them for acc_norm: those after the white space it begins with, so
/// that "Answer: " + "four" and "Answer:" + " four" are the same question.
std::size_t scored_characters(std::string_view choice);

/// The scores of an item's choices, given the log-probability of each.
ChoiceScores choice_scores(const TaskItem& item, std::vector<double> log_likelihoods);

/// The text of an answer as its tokens come, up to the first stop that appears in it. A stop may
/// begin in one token and end in another.
class AnswerText {
 public:
  /// All must outlive it.
  AnswerText(const Tokenizer& tokenizer, const std::vector<std::string>& stops);

  /// The next token; false when the text has met a stop, and is cut there.
  bool push(std::int32_t token) { return append(decoder_.push(token)); }
  /// What was written, compared with the item's answers. `end`: what ended it. Throws as
  /// AnswerPattern::find.
  GeneratedAnswer finish(AnswerEnd end, const TaskItem& item, const AnswerPattern* extract);

 private:
  bool append(std::string_view piece);

  StreamDecoder decoder_;
  const std::vector<std::string>& stops_;
  std::size_t longest_ = 0;
  std::string text_;
};

/// Checks that `pattern` finds something in every answer to be generated. Throws Error(kUser)
/// naming `path` and the line where it does not.
void check_answers(const std::vector<TaskItem>& items, const AnswerPattern& pattern,
                   const std::string& path);

}  // namespace atl::serve
