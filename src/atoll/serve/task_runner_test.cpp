// Scores and generated answers of a small random model against the slow way.

#include "atoll/serve/task_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "atoll/base/error.h"
#include "atoll/ops/testing.h"
#include "atoll/serve/task_results.h"
#include "atoll/serve/task_testing.h"

namespace atl::serve {
namespace {

using test::choosing;
using test::letter_model;
using test::letters;
using test::Question;
using test::questions;
using test::repeated;
using test::writing;
using ::testing::HasSubstr;

// The model with its device.
struct Model {
  Model() : engine(*run.device, letter_model(), letter_model().max_positions) {
    engine.store().initialise(run, 5);
  }
  test::TestRun run;
  InferenceEngine engine;
};

// Log-softmax sums the slow way: an engine of its own, one token after the other.
double slow_score(const EncodedItem& item, std::size_t choice) {
  Model model;
  std::span<const float> logits;
  for (const std::int32_t token : item.context) logits = model.engine.append({&token, 1});
  double total = 0;
  for (const std::int32_t token : item.continuations[choice]) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    total += logits[static_cast<std::size_t>(token)] - std::log(sum);
    logits = model.engine.append({&token, 1});
  }
  return total;
}

// Pieces of 64 and 8 tokens against single ones: each of about 10 products that a token goes
// through is a sum of at most 40 terms, so off by 40 eps of its size, which stays within 8.
constexpr double kPerToken = 10 * 40 * 8 * 0.5 * std::numeric_limits<float>::epsilon();

TEST(TaskRunner, ScoresAreSumsOfLogSoftmax) {
  Model model;
  const Tokenizer tokenizer = letters();
  const AnswerOptions options;
  TaskRunner runner(model.engine, tokenizer, options);
  for (const Question& question : questions()) {
    const ChoiceScores scores = *runner.score(question.item, question.encoded);
    ASSERT_EQ(scores.log_likelihoods.size(), question.item.choices.size());
    for (std::size_t i = 0; i < scores.log_likelihoods.size(); ++i) {
      const auto length = static_cast<double>(question.encoded.continuations[i].size());
      EXPECT_NEAR(scores.log_likelihoods[i], slow_score(question.encoded, i), length * kPerToken)
          << question.item.prompt << " -> " << question.item.choices[i];
    }
  }
}

TEST(TaskRunner, WhatTheCacheHoldsChangesNoBit) {
  Model shared;
  const Tokenizer tokenizer = letters();
  const AnswerOptions options;
  TaskRunner runner(shared.engine, tokenizer, options);
  std::vector<Question> all = questions();
  for (int round = 0; round < 2; ++round) {
    for (const Question& question : all) {
      Model fresh;
      TaskRunner alone(fresh.engine, tokenizer, options);
      EXPECT_EQ(runner.score(question.item, question.encoded)->log_likelihoods,
                alone.score(question.item, question.encoded)->log_likelihoods)
          << question.item.prompt;
    }
    std::reverse(all.begin(), all.end());
  }
}

TEST(TaskRunner, TheOrderOfChoicesChangesNoBit) {
  Model model;
  const Tokenizer tokenizer = letters();
  const AnswerOptions options;
  TaskRunner runner(model.engine, tokenizer, options);
  const Question ahead = choosing("the sea", {" is wide and blue", ".", " ring"});
  const Question back = choosing("the sea", {" ring", ".", " is wide and blue"});
  std::vector<double> scores = runner.score(ahead.item, ahead.encoded)->log_likelihoods;
  std::reverse(scores.begin(), scores.end());
  EXPECT_EQ(runner.score(back.item, back.encoded)->log_likelihoods, scores);
}

TEST(TaskRunner, TheBestByByteIsNotTheBestBySum) {
  Model model;
  const Tokenizer tokenizer = letters();
  const AnswerOptions options;
  TaskRunner runner(model.engine, tokenizer, options);
  // Of a random model's letters each costs about the same: the shorter choice costs less in all.
  const Question question = choosing("the sea", {" abcdefghijklmnop", " q", " q"});
  const ChoiceScores scores = *runner.score(question.item, question.encoded);
  EXPECT_EQ(scores.best, 1U) << "of equal ones the first";
  EXPECT_DOUBLE_EQ(scores.per_character[0], scores.log_likelihoods[0] / 16);
  EXPECT_DOUBLE_EQ(scores.per_character[1], scores.log_likelihoods[1]);
  EXPECT_EQ(scores.best_per_character,
            static_cast<std::size_t>(
                std::max_element(scores.per_character.begin(), scores.per_character.end()) -
                scores.per_character.begin()));
  EXPECT_EQ(scores.best_per_character, 0U);
}

TEST(TaskRunner, BytesOfAChoiceLeaveOutTheSpaceBeforeIt) {
  EXPECT_EQ(scored_characters(" four"), 4U);
  EXPECT_EQ(scored_characters("four "), 5U);
  EXPECT_EQ(scored_characters(" \xC3\xA9t\xC3\xA9"), 3U);
  EXPECT_EQ(scored_characters("\n"), 1U) << "nothing else to count";
}

// What the model writes after a prompt, 40 characters of it.
GeneratedAnswer generated(const Question& question, AnswerOptions options = {}) {
  Model model;
  const Tokenizer tokenizer = letters();
  options.max_new_tokens = 40;
  if (!options.stops) options.stops.emplace();
  TaskRunner runner(model.engine, tokenizer, options);
  return *runner.generate(question.item, question.encoded);
}

TEST(TaskRunner, AnswersEndBeforeAStopThatSpansTokens) {
  const GeneratedAnswer all = generated(writing("the sea", {"x"}));
  EXPECT_EQ(all.end, AnswerEnd::kMaxNewTokens);
  ASSERT_EQ(all.output.size(), 40U);
  ASSERT_GE(std::set<char>(all.output.begin(), all.output.end()).size(), 4U) << all.output;
  for (const std::size_t length : {1, 2, 3, 7}) {
    for (std::size_t at = 0; at + length <= all.output.size(); at += 5) {
      const std::string stop = all.output.substr(at, length);
      const GeneratedAnswer cut =
          generated(writing("the sea", {"x"}), {.stops = std::vector<std::string>{"QQ", stop}});
      EXPECT_EQ(cut.output, all.output.substr(0, all.output.find(stop))) << stop;
      EXPECT_EQ(cut.end, AnswerEnd::kStopText);
    }
  }
}

TEST(TaskRunner, TheFirstOfSeveralStopsEndsAnAnswer) {
  const std::string all = generated(writing("the sea", {"x"})).output;
  const std::vector<std::string> stops = {all.substr(20, 6), all.substr(9, 5)};
  const std::size_t end = std::min(all.find(stops[0]), all.find(stops[1]));
  EXPECT_EQ(generated(writing("the sea", {"x"}), {.stops = stops}).output, all.substr(0, end));
}

TEST(TaskRunner, AStopTokenEndsAnAnswerWithoutItsText) {
  const Tokenizer tokenizer = letters();
  const std::string all = generated(writing("the sea", {"x"})).output;
  const std::vector<std::int32_t> stop = tokenizer.encode(all.substr(12, 1));
  const GeneratedAnswer cut = generated(writing("the sea", {"x"}), {.stop_tokens = stop});
  EXPECT_EQ(cut.end, AnswerEnd::kStopToken);
  EXPECT_EQ(cut.output, all.substr(0, all.find(all[12])));
}

TEST(TaskRunner, APlainPromptsAnswerIsItsLineAndAChatsIsNot) {
  Model model;
  const Tokenizer tokenizer = letters();
  AnswerOptions options;
  options.max_new_tokens = 200;
  TaskRunner runner(model.engine, tokenizer, options);
  // A random model comes to a newline sooner or later, after one of these prompts.
  int ended = 0;
  for (const char* prompt : {"the sea", "a", "ring of", "q", "zz top", "many"}) {
    Question question = writing(prompt, {"x"});
    const GeneratedAnswer line = *runner.generate(question.item, question.encoded);
    EXPECT_EQ(line.output.find('\n'), std::string::npos);
    question.encoded.is_chat = true;
    const GeneratedAnswer chat = *runner.generate(question.item, question.encoded);
    EXPECT_EQ(chat.end, AnswerEnd::kMaxNewTokens);
    EXPECT_EQ(line.output, chat.output.substr(0, chat.output.find('\n')));
    ended += line.end == AnswerEnd::kStopText ? 1 : 0;
  }
  EXPECT_GT(ended, 0);
}

TEST(TaskRunner, GeneratingBetweenOtherItemsChangesNothing) {
  Model model;
  const Tokenizer tokenizer = letters();
  AnswerOptions options;
  options.max_new_tokens = 40;
  options.stops.emplace();
  TaskRunner runner(model.engine, tokenizer, options);
  const std::string examples = repeated("the sea is wide. ", 8);
  for (const std::string& prompt : {examples + "a", examples + "b", examples.substr(0, 128)}) {
    const Question write = writing(prompt, {"x"});
    const Question choose = choosing(prompt, {" b", "c"});
    EXPECT_EQ(runner.generate(write.item, write.encoded)->output, generated(write).output);
    const std::vector<double> after = runner.score(choose.item, choose.encoded)->log_likelihoods;
    Model fresh;
    TaskRunner alone(fresh.engine, tokenizer, options);
    EXPECT_EQ(alone.score(choose.item, choose.encoded)->log_likelihoods, after);
  }
}

TEST(TaskRunner, TrimmedEqualityWithAnyAnswerIsCorrect) {
  const std::string output = generated(writing("the sea", {"x"})).output;
  EXPECT_TRUE(generated(writing("the sea", {"x", " \n" + output + " "})).correct);
  EXPECT_FALSE(generated(writing("the sea", {output.substr(0, 39)})).correct);
  EXPECT_FALSE(generated(writing("the sea", {output + "x"})).correct);
}

TEST(TaskRunner, APatternPicksWhatIsComparedInBoth) {
  const std::string output = generated(writing("the sea", {"x"})).output;
  const AnswerPattern third("(?s)^..(.)", "--extract");
  const GeneratedAnswer same = generated(
      writing("the sea", {std::string("..") + output[2] + "anything"}), {.extract = &third});
  EXPECT_EQ(same.found, output.substr(2, 1));
  EXPECT_TRUE(same.correct);
  EXPECT_EQ(same.output, output) << "the results show all that was written";
  EXPECT_FALSE(generated(writing("the sea", {"..#"}), {.extract = &third}).correct);
  const AnswerPattern digit("[0-9]", "--extract");
  const GeneratedAnswer none = generated(writing("the sea", {"7"}), {.extract = &digit});
  EXPECT_EQ(none.found, std::nullopt);
  EXPECT_FALSE(none.correct);
}

TEST(TaskRunner, AnswersWithoutWhatIsExtractedAreRefused) {
  TaskItem item;
  item.line = 9;
  item.answers = {"#### 7", "seven"};
  const AnswerPattern pattern("#### (.*)", "--extract");
  try {
    check_answers({item}, pattern, "quiz.jsonl");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("quiz.jsonl line 9: "));
  }
  item.answers = {"#### 7"};
  check_answers({item}, pattern, "quiz.jsonl");
}

TEST(TaskRunner, StopsThatEndEverythingAreRefused) {
  EXPECT_THROW((AnswerOptions{.stops = std::vector<std::string>{"a", ""}}.validate()), Error);
  EXPECT_THROW((AnswerOptions{.stops = std::vector<std::string>{"\xC3"}}.validate()), Error);
}

TEST(TaskRunner, AnInterruptedItemHasNoResult) {
  Model model;
  const Tokenizer tokenizer = letters();
  int calls = 0;
  AnswerOptions options;
  options.stops.emplace();
  options.interrupted = [&] { return ++calls == 3; };
  TaskRunner runner(model.engine, tokenizer, options);
  const Question write = writing("the sea", {"x"});
  EXPECT_FALSE(runner.generate(write.item, write.encoded).has_value());
  calls = 1;
  const Question choose = choosing("the sea", {" is", " was"});
  EXPECT_FALSE(runner.score(choose.item, choose.encoded).has_value());
}

TEST(TaskResults, AccuracyHasTheStandardErrorOfASample) {
  Accuracy accuracy;
  for (const bool correct : {true, false, false, true, false}) accuracy.add(correct);
  EXPECT_DOUBLE_EQ(accuracy.value(), 0.4);
  // The sample's variance is (2 * 0.6^2 + 3 * 0.4^2) / 4 = 0.3.
  EXPECT_DOUBLE_EQ(accuracy.standard_error(), std::sqrt(0.3 / 5));
  Accuracy one;
  one.add(true);
  EXPECT_TRUE(std::isnan(one.standard_error()));
}

TEST(TaskResults, AreLinesOfJson) {
  TaskItem item;
  item.line = 3;
  item.choices = {" a", " \"b\"\n"};
  item.answer = 1;
  EncodedItem encoded;
  encoded.prompt = "p";
  ChoiceScores scores;
  scores.log_likelihoods = {-1.5, -2};
  scores.per_character = {-1.5, -0.5};
  scores.best_per_character = 1;
  EXPECT_EQ(to_json(item, encoded, scores),
            R"({"line":3,"type":"multiple_choice","prompt":"p","output":" a",)"
            R"("output_norm":" \"b\"\n","expected":" \"b\"\n","correct":false,)"
            R"("correct_norm":true,"scores":[-1.5,-2.0],"scores_norm":[-1.5,-0.5]})");
  item.answers = {"7"};
  encoded.dropped = 4;
  GeneratedAnswer answer;
  answer.output = "#### 7";
  answer.found = "7";
  answer.correct = true;
  answer.end = AnswerEnd::kStopText;
  EXPECT_EQ(to_json(item, encoded, answer),
            R"({"line":3,"type":"exact_match","prompt":"p","dropped_tokens":4,)"
            R"("output":"#### 7","found":"7","expected":["7"],"correct":true,)"
            R"("end":"stop_text"})");
  answer.found.reset();
  EXPECT_THAT(to_json(item, encoded, answer), HasSubstr("\"found\":null"));
}

}  // namespace
}  // namespace atl::serve
