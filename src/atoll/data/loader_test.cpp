#include "atoll/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "atoll/data/evaluation.h"
#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using testing::counting;
using testing::error_of;

constexpr std::int64_t kT = 8;

std::vector<std::int32_t> values(const Tensor& tensor) {
  const std::int32_t* data = tensor.data<std::int32_t>();
  return {data, data + tensor.num_elements()};
}

// Tokens of rows [first, first + rows) of the run, straight from the sampler.
std::vector<std::int32_t> expected(const TokenSource& source, const Sampler& sampler,
                                   std::int64_t first, std::int64_t rows, std::int64_t shift) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> row(static_cast<std::size_t>(sampler.context()));
  for (std::int64_t i = first; i < first + rows; ++i) {
    source.copy(sampler.sample(i).first_token + shift, row);
    tokens.insert(tokens.end(), row.begin(), row.end());
  }
  return tokens;
}

TEST(Loader, GivesTheSamplersRowsForEveryRankStepAndPrefetchDepth) {
  const TokenVector source("test", counting(1000));
  const Sampler sampler(3, 1000, kT);
  for (const int prefetch : {1, 2, 7}) {
    for (const std::int64_t rank : {0, 1, 2}) {
      Loader loader(source, sampler, {2, 12, {rank, rank + 3}, /*first_step=*/5, 0, prefetch});
      ASSERT_EQ(loader.micro_batches_per_step(), 2);
      for (std::int64_t i = 0; i < 100; ++i) {
        const Batch batch = loader.next();
        const std::int64_t first = (5 + i / 2) * 12 + (rank + i % 2 * 3) * 2;
        ASSERT_EQ(batch.first_sample, first);
        ASSERT_EQ(batch.tokens.shape(), Shape({2, kT}));
        ASSERT_EQ(values(batch.tokens), expected(source, sampler, first, 2, 0));
        ASSERT_EQ(values(batch.targets), expected(source, sampler, first, 2, 1));
      }
    }
  }
}

TEST(Loader, TargetsAreTheTokensShiftedByOne) {
  const TokenVector source("test", counting(500));
  Loader loader(source, Sampler(1, 500, kT), {.micro_batch = 3});
  for (int i = 0; i < 50; ++i) {
    const Batch batch = loader.next();
    std::vector<std::int32_t> next = values(batch.tokens);
    for (std::int32_t& token : next) ++token;
    EXPECT_EQ(values(batch.targets), next);
  }
}

TEST(Loader, ResumedAtAnyMicroBatchGoesOnAsIfUninterrupted) {
  const TokenVector source("test", counting(300));
  const Sampler sampler(9, 300, kT);
  Loader whole(source, sampler, {.micro_batch = 2, .global_batch = 6});
  std::vector<std::vector<std::int32_t>> batches;
  for (int i = 0; i < 60; ++i) batches.push_back(values(whole.next().tokens));
  for (std::int64_t start = 0; start < 30; ++start) {
    Loader resumed(source, sampler,
                   {.micro_batch = 2,
                    .global_batch = 6,
                    .first_step = start / 3,
                    .first_micro_batch = start % 3});
    for (std::size_t i = 0; i < 30; ++i) {
      ASSERT_EQ(values(resumed.next().tokens), batches[static_cast<std::size_t>(start) + i]);
    }
  }
}

// Counts the reads from another source.
class CountingSource final : public TokenSource {
 public:
  explicit CountingSource(const TokenSource& of) : of_(of) {}
  std::string name() const override { return "counting"; }
  std::int64_t num_tokens() const override { return of_.num_tokens(); }
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override {
    of_.copy(begin, out);
    ++reads_;
    reads_.notify_all();
  }
  int reads() const { return reads_; }
  void wait_for_reads(int wanted) const {
    for (int seen = reads_; seen < wanted; seen = reads_) reads_.wait(seen);
  }

 private:
  const TokenSource& of_;
  mutable std::atomic<int> reads_{0};
};

// Lets a thread that has something to do get on with it: as long as another loader takes for fifty
// batches that it must wait for.
void let_threads_run() {
  const TokenVector tokens("clock", counting(100));
  Loader clock(tokens, Sampler(1, 100, kT), {.prefetch = 1});
  for (int i = 0; i < 50; ++i) clock.next();
}

TEST(Loader, BatchStaysUntouchedUntilTheNextCall) {
  const TokenVector tokens("test", counting(300));
  const CountingSource source(tokens);
  Loader loader(source, Sampler(9, 300, kT), {.prefetch = 1});
  for (int i = 0; i < 20; ++i) {
    const Batch batch = loader.next();
    const std::vector<std::int32_t> before = values(batch.tokens);
    source.wait_for_reads(i + 2);
    let_threads_run();
    EXPECT_EQ(values(batch.tokens), before);
  }
}

TEST(Loader, ReadsPrefetchBatchesAheadOfTheOneInUse) {
  const TokenVector tokens("test", counting(100));
  for (const int prefetch : {1, 3}) {
    const CountingSource source(tokens);
    Loader loader(source, Sampler(1, 100, kT), {.prefetch = prefetch});
    for (int i = 0; i < 20; ++i) {
      loader.next();
      source.wait_for_reads(i + 1 + prefetch);
      let_threads_run();  // and no further
      EXPECT_EQ(source.reads(), i + 1 + prefetch);
    }
  }
}

// Fails the n-th read.
class FailingSource final : public TokenSource {
 public:
  explicit FailingSource(int good_reads) : left_(good_reads) {}
  std::string name() const override { return "failing"; }
  std::int64_t num_tokens() const override { return 100; }
  void copy(std::int64_t /*begin*/, std::span<std::int32_t> out) const override {
    if (left_.fetch_sub(1) <= 0) throw damaged_error("the disk has gone");
    std::fill(out.begin(), out.end(), 1);
  }

 private:
  mutable std::atomic<int> left_;
};

TEST(Loader, RethrowsTheThreadsErrorAfterTheBatchesReadBefore) {
  const FailingSource source(5);
  Loader loader(source, Sampler(1, 100, kT), {.micro_batch = 2, .prefetch = 3});
  loader.next();
  loader.next();
  EXPECT_EQ(error_of([&] { loader.next(); }), "the disk has gone");
  EXPECT_EQ(error_of([&] { loader.next(); }), "the disk has gone");
}

TEST(Loader, EndsWithoutABatchTakenOrWithTheRingFull) {
  const TokenVector source("test", counting(300));
  for (int i = 0; i < 50; ++i) {
    Loader loader(source, Sampler(9, 300, kT), {.prefetch = 1 + i % 3});
    if (i % 2 == 0) loader.next();
  }
}

TEST(Loader, RefusesABatchThatDoesNotDivide) {
  const TokenVector source("test", counting(300));
  const Sampler sampler(9, 300, kT);
  EXPECT_THAT(error_of([&] { Loader(source, sampler, {.micro_batch = 4, .global_batch = 6}); }),
              ::testing::AllOf(::testing::HasSubstr("6 sequences"), ::testing::HasSubstr("of 4")));
  EXPECT_NE(error_of([&] { Loader(source, sampler, {.micro_batch = 0}); }), "");
  EXPECT_NE(error_of([&] { Loader(source, sampler, {.prefetch = 0}); }), "");
}

TEST(Loader, SaysHowLongItWaited) {
  const TokenVector source("test", counting(300));
  Loader loader(source, Sampler(9, 300, kT), {});
  EXPECT_EQ(loader.waited_seconds(), 0);
  loader.next();
  EXPECT_GT(loader.waited_seconds(), 0);
}

TEST(Evaluation, MakesEveryTokenButTheFirstATargetOnceInOrder) {
  for (const std::int64_t num_tokens : {2, 8, 9, 10, 16, 17, 100}) {
    for (const std::int64_t micro_batch : {1, 3}) {
      const TokenVector source("test", counting(num_tokens));
      EvaluationBatches batches(source, {micro_batch, kT});
      for (int pass = 0; pass < 2; ++pass) {
        std::vector<std::int32_t> targets;
        std::int64_t count = 0;
        for (auto batch = batches.next(); batch; batch = batches.next(), ++count) {
          ASSERT_EQ(batch->targets.shape(), Shape({micro_batch, kT}));
          ASSERT_EQ(batch->first_sample, count * micro_batch);
          const std::vector<std::int32_t> x = values(batch->tokens);
          const std::vector<std::int32_t> y = values(batch->targets);
          for (std::size_t i = 0; i < y.size(); ++i) {
            ASSERT_EQ(x[i], y[i] == kIgnoreTarget ? 0 : y[i] - 1);
            if (y[i] != kIgnoreTarget) targets.push_back(y[i]);
          }
        }
        std::vector<std::int32_t> all = counting(num_tokens);
        all.erase(all.begin());
        EXPECT_EQ(targets, all);
        EXPECT_EQ(count, batches.num_batches());
        EXPECT_EQ(batches.num_targets(), num_tokens - 1);
        batches.rewind();
      }
    }
  }
}

TEST(Evaluation, StopsAfterTheWindowWithTheLastTargetAskedFor) {
  const TokenVector source("test", counting(100));
  EvaluationBatches batches(source, {2, kT, 2 * kT + 1});
  EXPECT_EQ(batches.num_targets(), 3 * kT);
  EXPECT_EQ(batches.num_batches(), 2);
  batches.next();
  EXPECT_EQ(values(batches.next()->targets)[kT], kIgnoreTarget);
  EXPECT_FALSE(batches.next());
}

TEST(Evaluation, RefusesASplitWithoutATarget) {
  const TokenVector source("the heldout split", counting(1));
  EXPECT_THAT(error_of([&] {
                EvaluationBatches(source, {1, kT});
              }),
              ::testing::HasSubstr("the heldout split has 1 tokens"));
}

}  // namespace
}  // namespace atl::data
