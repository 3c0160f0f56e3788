#pragma once

// A model answers the items of a task.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/serve/inference_engine.h"
#include "atoll/serve/task.h"
#include "atoll/serve/task_encoding.h"
#include "atoll/serve/task_extract.h"
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

/// The characters (Unicode code points) of a choice that its score is divided by, as
/// lm-evaluation-harness counts them for acc_norm: those after the white space it begins with, so
/// that "Answer: " + "four" and "Answer:" + " four" are the same question.
std::size_t scored_characters(std::string_view choice);

/// Answers items with one engine. A beginning that an item shares with the one before (the examples
/// of a few-shot prompt) is not computed again; no bit of any score depends on that, nor on the
/// order of items or choices.
class TaskRunner {
 public:
  /// All must outlive the runner, and nobody else may use the engine. Throws as
  /// AnswerOptions::validate.
  TaskRunner(InferenceEngine& engine, const Tokenizer& tokenizer, const AnswerOptions& options);

  /// Scores the choices of a multiple choice; none when interrupted. Throws as
  /// InferenceEngine::score.
  std::optional<ChoiceScores> score(const TaskItem& item, const EncodedItem& encoded);
  /// Generates the most likely answer, token by token, and compares; none when interrupted. Throws
  /// as InferenceEngine::generate, and as AnswerPattern::find.
  std::optional<GeneratedAnswer> generate(const TaskItem& item, const EncodedItem& encoded);

 private:
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  std::size_t keep_shared(const std::vector<std::int32_t>& tokens);
  bool matches(const TaskItem& item, const std::optional<std::string>& found) const;

  InferenceEngine& engine_;
  const Tokenizer& tokenizer_;
  const AnswerOptions& options_;
  std::vector<std::int32_t> prefix_;  // what the engine's cache begins with, appended at once
};

/// Checks that `pattern` finds something in every answer to be generated. Throws Error(kUser)
/// naming `path` and the line where it does not.
void check_answers(const std::vector<TaskItem>& items, const AnswerPattern& pattern,
                   const std::string& path);

}  // namespace atl::serve
