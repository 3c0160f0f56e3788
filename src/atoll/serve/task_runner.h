#pragma once

// A model answers the items of a task, one after the other.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/serve/inference_engine.h"
#include "atoll/serve/task.h"
#include "atoll/serve/task_answer.h"
#include "atoll/serve/task_encoding.h"
#include "atoll/text/tokenizer.h"

namespace atl::serve {

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
  /// Either of these, as the item asks.
  std::optional<TaskAnswer> answer(const TaskItem& item, const EncodedItem& encoded);
  /// Generates the most likely answer, token by token, and compares; none when interrupted. Throws
  /// as InferenceEngine::generate, and as AnswerPattern::find.
  std::optional<GeneratedAnswer> generate(const TaskItem& item, const EncodedItem& encoded);

 private:
  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  std::size_t keep_shared(const std::vector<std::int32_t>& tokens);

  InferenceEngine& engine_;
  const Tokenizer& tokenizer_;
  const AnswerOptions& options_;
  std::vector<std::int32_t> prefix_;  // what the engine's cache begins with, appended at once
};

}  // namespace atl::serve
