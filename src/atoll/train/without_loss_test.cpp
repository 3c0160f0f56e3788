// Batches in which no token has a loss: prompts that are longer than a row.

#include <set>

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WithoutLoss : public RanksFixture {
 protected:
  // Questions of so many bytes with answers of a few.
  void write_questions(int count, std::size_t bytes) {
    const RngStream stream(5, RngPurpose::kSynthetic);
    std::string lines;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t word = stream.word(static_cast<std::uint64_t>(i));
      const std::string question(bytes, static_cast<char>('a' + word % 26));
      lines +=
          fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", question, word % 100);
    }
    write_file(root_ / "questions.jsonl", lines);
  }
  std::vector<std::string> settings(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"--data.text=" + (root_ / "questions.jsonl").string(),
                                    "--data.new_tokenizer=byte",
                                    "--data.vocab_size",
                                    "--data.packing=stream",
                                    "--data.held_out=0",
                                    "--train.batch_size=4",
                                    "--train.micro_batch=1",
                                    "--train.dropout=0",
                                    "--train.exact=true"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The steps that the log says were skipped.
  static std::set<std::int64_t> skipped(const std::vector<metrics::Record>& records) {
    std::set<std::int64_t> steps;
    for (const metrics::Record& record : records) {
      bool has_loss = false, has_count = false;
      for (const auto& [key, value] : record.values) {
        has_loss |= key == "loss";
        has_count |= key == "steps_without_loss";
      }
      if (has_count && !has_loss) steps.insert(record.step);
    }
    return steps;
  }
};

TEST_F(WithoutLoss, ABatchIsSkippedAndCountedAndTheRunGoesOn) {
  write_questions(60, 300);
  const Ended ended = train_ranks("run", 1, settings());
  EXPECT_EQ(ended.outcome.step, 20);
  const std::set<std::int64_t> steps = skipped(ended.records);
  EXPECT_GE(steps.size(), 2U);
  EXPECT_LE(steps.size(), 18U);
  EXPECT_EQ(values_of(ended.records, "loss").size(), 20 - steps.size());
  // It goes on in the same way after a stop, and counts on.
  train_ranks("parts", 1, settings(), /*stop_after=*/*steps.begin() + 1);
  const Ended rest = train_ranks("parts", 1, settings());
  EXPECT_TRUE(rest.values == ended.values);
  EXPECT_EQ(skipped(rest.records), steps);
}

TEST_F(WithoutLoss, AllRanksAgreeInEveryLayout) {
  write_questions(60, 300);
  const Ended one = train_ranks("one", 1, settings());
  ASSERT_FALSE(skipped(one.records).empty());
  for (int zero = 0; zero <= 3; ++zero) {
    const std::string name = fmt::format("zero{}", zero);
    const Ended ended = train_ranks(name, 2, settings({fmt::format("--dp.zero={}", zero)}));
    EXPECT_TRUE(ended.values == one.values) << zero;
    EXPECT_EQ(skipped(ended.records), skipped(one.records)) << zero;
  }
  // A table that two stages share has sums in an order of its own.
  const std::string own_head = "--model.tie_word_embeddings=false";
  const Ended plain = train_ranks("plain", 1, settings({own_head, "--train.exact=false"}));
  const Ended pipeline =
      train_ranks("pipeline", 2, settings({own_head, "--train.exact=false", "--parallel.pp=2"}));
  EXPECT_TRUE(pipeline.values == plain.values);
  EXPECT_EQ(skipped(pipeline.records), skipped(plain.records));
  for (const char* layout : {"--parallel.pp=2", "--parallel.tp=2", "--parallel.cp=2"}) {
    const Ended ended = train_ranks(layout + 2, 2, settings({layout, "--train.exact=false"}));
    EXPECT_EQ(skipped(ended.records), skipped(one.records)) << layout;
    EXPECT_EQ(ended.outcome.step, 20) << layout;
  }
}

// Compressors and optimizers that talk to each other in a step.
TEST_F(WithoutLoss, RanksThatCompressAgreeToo) {
  write_questions(60, 300);
  for (const char* how : {"int8", "powersgd"}) {
    const Ended ended = train_ranks(
        how, 2, settings({"--train.exact=false", fmt::format("--dp.compress={}", how)}));
    EXPECT_EQ(ended.outcome.step, 20) << how;
    EXPECT_FALSE(skipped(ended.records).empty()) << how;
    for (const double loss : values_of(ended.records, "loss")) EXPECT_TRUE(std::isfinite(loss));
  }
}

TEST_F(WithoutLoss, DataThatHasNothingElseEndsTheRunAtOnce) {
  write_questions(1, 100'000);
  const std::string error =
      error_of([&] { train_ranks("run", 1, settings({"--train.steps=400"})); }, ErrorKind::kUser);
  EXPECT_THAT(error, AllOf(HasSubstr("step 1 has nothing to learn from"), HasSubstr("99 steps"),
                           HasSubstr("of the train split of "), HasSubstr("use a larger batch")));
}

TEST_F(WithoutLoss, ARunThatIsTooShortToLearnAnythingSaysSo) {
  write_questions(1, 100'000);
  EXPECT_THAT(error_of([&] { train_ranks("run", 2, settings()); }, ErrorKind::kUser),
              HasSubstr("step 1 has nothing to learn from"));
}

}  // namespace
}  // namespace atl::train
