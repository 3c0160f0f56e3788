#pragma once

// What answering a task has shown: one line an item, and shares of right answers.

#include <cstdint>
#include <string>

#include "atoll/serve/task.h"
#include "atoll/serve/task_answer.h"
#include "atoll/serve/task_encoding.h"

namespace atl::serve {

/// A share of items, as an estimate of that of all such items.
struct Accuracy {
  std::int64_t count = 0;
  std::int64_t correct = 0;

  void add(bool is_correct) {
    ++count;
    correct += is_correct ? 1 : 0;
  }
  /// The share; there must be an item.
  double value() const;
  /// The standard error of the mean, from the sample's own variance: sqrt(p (1 - p) / (n - 1)). NaN
  /// for one item.
  double standard_error() const;
};

/// The item and its scores as a line of JSON, without the newline: line, type, prompt, output (the
/// most likely choice), expected, correct, scores in nats; output_norm, correct_norm and
/// scores_norm are the same by byte. The prompt is the text that was encoded; dropped_tokens, where
/// there are any, were taken from its start.
std::string to_json(const TaskItem& item, const EncodedItem& encoded, const ChoiceScores& scores);
/// The same of a generated answer: line, type, prompt, output, found (what of the output was
/// compared; null for nothing), expected, correct, end ("stop_text", "stop_token", "max_tokens").
std::string to_json(const TaskItem& item, const EncodedItem& encoded,
                    const GeneratedAnswer& answer);

/// An item that was left out because it is too long: line, type "skipped", prompt, prompt_tokens.
std::string skipped_json(const TaskItem& item, const EncodedItem& encoded);

}  // namespace atl::serve
