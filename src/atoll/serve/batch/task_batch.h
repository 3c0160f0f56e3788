#pragma once

// A model answers the items of a task, many at once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/serve/batch/generator.h"
#include "atoll/serve/task_answer.h"

namespace atl::serve {

/// An item of a task, twice; both must outlive the call that gets it.
struct TaskQuestion {
  const TaskItem* item = nullptr;
  const EncodedItem* encoded = nullptr;
};

/// Answers items with a generator: the choices of several questions, and answers to be written, are
/// requests that run together. No bit of any score depends on what runs beside it. A beginning that
/// requests share (the prompt of all choices, the examples of a few-shot prompt) is computed once:
/// one request takes it through the model, and those that begin alike wait until it is in the
/// cache.
class TaskBatch {
 public:
  /// All must outlive it. `at_once`: requests that run together, at most as many as the generator
  /// takes into its queue. Throws as AnswerOptions::validate.
  TaskBatch(Generator& generator, const Tokenizer& tokenizer, const AnswerOptions& options,
            std::int64_t at_once);

  /// Gets the answer to questions[index]; called by the caller's thread.
  using Take = std::function<void(std::size_t index, const TaskAnswer& answer)>;
  /// Answers all questions, and gives each answer in their order. False: interrupted, and those
  /// that were not given are lost. Throws Error(kNumeric) where the model's numbers are not finite,
  /// what `take` throws, and as Generator::submit.
  bool answer(std::span<const TaskQuestion> questions, const Take& take);

 private:
  struct Open;
  struct Work;
  struct Shared;
  class Listener;
  class Answering;

  Generator& generator_;
  const Tokenizer& tokenizer_;
  const AnswerOptions& options_;
  std::int64_t at_once_;
};

}  // namespace atl::serve
