// Questions answered many at once get what they get alone, and what one engine gives them.

#include "atoll/serve/batch/task_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>

#include "atoll/base/error.h"
#include "atoll/ops/testing.h"
#include "atoll/serve/batch/batch_testing.h"
#include "atoll/serve/task_runner.h"
#include "atoll/serve/task_testing.h"

namespace atl::serve {
namespace {

using test::choosing;
using test::letter_model;
using test::letters;
using test::Question;
using test::repeated;
using test::writing;

// Of a small model's products each is a sum of at most 40 terms, and a token goes through about 10
// of them: other orders of the same sums differ by less.
constexpr double kPerToken = 10 * 40 * 8 * 0.5 * std::numeric_limits<float>::epsilon();
constexpr std::int64_t kAtOnce = 8;

std::unique_ptr<BatchGenerator> generator(std::int64_t blocks = 200, int threads = 2,
                                          std::int64_t rows = 64) {
  auto model = std::make_unique<StepModel>(open_cpu(threads), letter_model(), Weights::kF32,
                                           StepRoom{letter_model().max_positions, rows, blocks});
  model->initialise(5);
  return std::make_unique<BatchGenerator>(std::move(model),
                                          BatchOptions{.slots = kAtOnce,
                                                       .max_waiting = kAtOnce,
                                                       .vocab_size = letters().vocab_size(),
                                                       .last_needs_no_position = true});
}

AnswerOptions options() {
  AnswerOptions options;
  options.max_new_tokens = 40;
  options.stops.emplace();
  return options;
}

// Choices and texts to write, some of which begin alike.
std::vector<Question> mixed() {
  std::vector<Question> all = test::questions();
  const std::string examples = repeated("the sea is wide. ", 8);
  for (const char* end : {"a", "the boat", "rings of stones"}) {
    all.push_back(writing(examples + end, {"x"}));
    all.push_back(choosing(examples + end, {" b", "c", " far away", "."}));
    all.push_back(writing(end, {"x"}));
  }
  return all;
}

std::vector<TaskQuestion> asked(const std::vector<Question>& questions) {
  std::vector<TaskQuestion> asked;
  for (const Question& question : questions) asked.push_back({&question.item, &question.encoded});
  return asked;
}

std::vector<TaskAnswer> answers(Generator& generator, const std::vector<Question>& questions,
                                std::int64_t at_once = kAtOnce) {
  const Tokenizer tokenizer = letters();
  const AnswerOptions how = options();
  TaskBatch batch(generator, tokenizer, how, at_once);
  std::vector<TaskAnswer> answers;
  EXPECT_TRUE(batch.answer(asked(questions), [&](std::size_t index, const TaskAnswer& answer) {
    EXPECT_EQ(index, answers.size()) << "in order";
    answers.push_back(answer);
  }));
  EXPECT_EQ(answers.size(), questions.size());
  return answers;
}

void expect_same(const std::vector<TaskAnswer>& a, const std::vector<TaskAnswer>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].scores.has_value(), b[i].scores.has_value());
    if (a[i].scores) {
      EXPECT_EQ(a[i].scores->log_likelihoods, b[i].scores->log_likelihoods) << i;
    } else {
      EXPECT_EQ(a[i].generated->output, b[i].generated->output) << i;
      EXPECT_EQ(a[i].generated->end, b[i].generated->end) << i;
    }
  }
}

TEST(TaskBatch, AnswersAreThoseOfOneAfterTheOther) {
  const std::vector<Question> questions = mixed();
  test::TestRun run(1);
  InferenceEngine engine(*run.device, letter_model(), letter_model().max_positions);
  engine.store().initialise(run, 5);
  engine.limit_vocabulary(letters().vocab_size());
  const Tokenizer tokenizer = letters();
  const AnswerOptions how = options();
  TaskRunner runner(engine, tokenizer, how);
  const auto many = generator();
  const std::vector<TaskAnswer> together = answers(*many, questions);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const TaskAnswer alone = *runner.answer(questions[i].item, questions[i].encoded);
    if (!alone.scores) {
      EXPECT_EQ(together[i].generated->output, alone.generated->output) << i;
      EXPECT_EQ(together[i].generated->end, alone.generated->end) << i;
      continue;
    }
    EXPECT_EQ(together[i].scores->best, alone.scores->best) << i;
    for (std::size_t c = 0; c < alone.scores->log_likelihoods.size(); ++c) {
      const auto length = static_cast<double>(questions[i].encoded.continuations[c].size());
      EXPECT_NEAR(together[i].scores->log_likelihoods[c], alone.scores->log_likelihoods[c],
                  length * kPerToken)
          << i << ": " << questions[i].item.choices[c];
    }
  }
}

TEST(TaskBatch, WhatRunsBesideItChangesNoBit) {
  std::vector<Question> questions = mixed();
  const std::vector<TaskAnswer> expected = answers(*generator(), questions);
  // One request at a time; steps of few rows by one thread; memory for little more than one
  // request, so that requests lose theirs and are computed again.
  expect_same(answers(*generator(), questions, 1), expected);
  expect_same(answers(*generator(200, 1, 11), questions), expected);
  const auto small = generator(18);
  expect_same(answers(*small, questions), expected);
  EXPECT_GT(small->stats().preempted, 0);
  // Another order, and a cache that has seen all of them.
  std::ranges::reverse(questions);
  std::vector<TaskAnswer> back = answers(*small, questions);
  std::ranges::reverse(back);
  expect_same(back, expected);
}

TEST(TaskBatch, WhatRequestsShareIsComputedOnce) {
  const std::string examples = repeated("the sea is wide. ", 8);  // 136 tokens: 8 blocks of 16
  std::vector<Question> questions;
  for (const char* end : {"a", "b", "c", "d", "e"}) {
    questions.push_back(choosing(examples + end, {" b", " c", " d", " e"}));
  }
  const auto many = generator();
  answers(*many, questions);
  const GeneratorStats stats = many->stats();
  EXPECT_EQ(stats.finished, 20);
  EXPECT_EQ(stats.cached_tokens, 19 * 128) << "all but the first request";
}

TEST(TaskBatch, AnItemMayTakeAllPositionsWithoutItsLastToken) {
  const auto positions = static_cast<std::size_t>(letter_model().max_positions);
  const std::vector<Question> questions = {
      choosing(std::string(positions - 1, 'a'), {"bc", "d"}),
      writing(std::string(positions - 39, 'a'), {"x"}),
  };
  const std::vector<TaskAnswer> made = answers(*generator(), questions);
  EXPECT_EQ(made[0].scores->log_likelihoods.size(), 2U);
  EXPECT_EQ(made[1].generated->output.size(), 40U);
}

TEST(TaskBatch, InterruptedItGivesWhatIsThereAndLeavesNothingRunning) {
  const auto many = generator();
  const Tokenizer tokenizer = letters();
  const std::vector<Question> questions = mixed();
  AnswerOptions how = options();
  bool stop = false;
  how.interrupted = [&] { return stop; };
  TaskBatch batch(*many, tokenizer, how, kAtOnce);
  std::size_t given = 0;
  EXPECT_FALSE(
      batch.answer(asked(questions), [&](std::size_t, const TaskAnswer&) { stop = ++given == 2; }));
  EXPECT_GE(given, 2U);
  EXPECT_EQ(many->stats().running + many->stats().waiting, 0);
  EXPECT_EQ(many->stats().blocks_in_use, 0);
}

TEST(TaskBatch, WhatTakingAnAnswerThrowsEndsIt) {
  const auto many = generator();
  const Tokenizer tokenizer = letters();
  const std::vector<Question> questions = mixed();
  const AnswerOptions how = options();
  TaskBatch batch(*many, tokenizer, how, kAtOnce);
  EXPECT_THROW(batch.answer(asked(questions),
                            [](std::size_t, const TaskAnswer&) {
                              throw std::runtime_error("the disk is full");
                            }),
               std::runtime_error);
  EXPECT_EQ(many->stats().running + many->stats().waiting, 0);
}

TEST(TaskBatch, NumbersThatAreNotFiniteNameTheLine) {
  auto model = std::make_unique<StepModel>(open_cpu(1), letter_model(), Weights::kF32,
                                           StepRoom{letter_model().max_positions, 64, 100});
  model->store().fill([](const nn::Param&, const Tensor& whole) {
    std::fill_n(whole.data<float>(), whole.num_elements(), std::numeric_limits<float>::quiet_NaN());
  });
  BatchGenerator broken(std::move(model), {.slots = kAtOnce});
  std::vector<Question> questions = {choosing("a", {" b", " c"}), choosing("b", {" b", " c"})};
  for (Question& question : questions) question.item.line = 7;
  const Tokenizer tokenizer = letters();
  const AnswerOptions how = options();
  TaskBatch batch(broken, tokenizer, how, kAtOnce);
  try {
    batch.answer(asked(questions), [](std::size_t, const TaskAnswer&) { ADD_FAILURE(); });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_NE(std::string(error.what()).find("line 7"), std::string::npos) << error.what();
  }
}

TEST(BatchGenerator, LogProbabilitiesFromATokenOnAreThoseOfTheWholePrompt) {
  const auto many = generator();
  const Question question = choosing(repeated("the sea is wide. ", 8), {" b"});
  const std::vector<std::int32_t>& prompt = question.encoded.context;
  const auto told = [&](std::int64_t first) {
    GenerationRequest request = {.prompt = prompt, .top_logprobs = 2, .prompt_logprobs = true};
    request.first_prompt_logprob = first;
    const auto collector = std::make_shared<test::Collector>();
    many->submit(std::move(request), collector);
    EXPECT_EQ(collector->wait().finish, Finish::kLength);
    return collector->prompt();
  };
  const std::vector<TokenResult> whole = told(1);
  ASSERT_EQ(whole.size(), prompt.size() - 1);
  for (const std::int64_t first : {2, 16, 17, 100, 134}) {
    const std::vector<TokenResult> part = told(first);
    ASSERT_EQ(std::ssize(part), std::ssize(prompt) - first);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const TokenResult& expected = whole[static_cast<std::size_t>(first) - 1 + i];
      EXPECT_EQ(part[i].token, expected.token);
      EXPECT_EQ(part[i].logprob, expected.logprob);
      EXPECT_EQ(part[i].top, expected.top);
    }
  }
  EXPECT_GT(many->stats().cached_tokens, 0);
}

}  // namespace
}  // namespace atl::serve
