#include "atoll/data/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "atoll/data/document_samples.h"
#include "atoll/data/evaluation.h"
#include "atoll/data/loader.h"
#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using testing::counting;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::int32_t kNone = kIgnoreTarget;

using Tokens = std::vector<std::int32_t>;

struct Row {
  Tokens tokens, targets, positions;
};

Row row_of(const SampleSource& samples, std::int64_t sample) {
  const auto T = static_cast<std::size_t>(samples.context());
  Row row = {Tokens(T, 99), Tokens(T, 99), Tokens(T, 99)};
  RowScratch scratch;
  samples.fill(sample, {row.tokens, row.targets, row.positions}, scratch);
  const auto targets =
      static_cast<std::int64_t>(T) - std::count(row.targets.begin(), row.targets.end(), kNone);
  EXPECT_EQ(samples.count_targets(sample, scratch), targets);
  return row;
}

// The sampler has one window only, from token 0.
WindowSamples one_window(const TokenSource& source, std::int64_t T, Packing packing) {
  const std::int64_t n = source.num_tokens();
  EXPECT_EQ(n, T + 1);
  return {source, Sampler(1, n, T), packing};
}

TEST(WindowSamples, MaskedWindowCutsAttentionAndTargetsBetweenDocuments) {
  const TokenVector source("test", {10, 11, 12, 20, 30, 31, 40}, {0, 3, 4, 6});
  const Row row = row_of(one_window(source, 6, Packing::kMasked), 0);
  EXPECT_EQ(row.tokens, Tokens({10, 11, 12, 20, 30, 31}));
  EXPECT_EQ(row.targets, Tokens({11, 12, kNone, kNone, 31, kNone}));
  EXPECT_EQ(row.positions, Tokens({0, 1, 2, 0, 0, 1}));
}

TEST(WindowSamples, StreamWindowRunsThroughDocuments) {
  const TokenVector source("test", {10, 11, 12, 20, 30, 31, 40}, {0, 3, 4, 6});
  const WindowSamples samples = one_window(source, 6, Packing::kStream);
  EXPECT_FALSE(samples.may_ignore());
  const Row row = row_of(samples, 0);
  EXPECT_EQ(row.targets, Tokens({11, 12, 20, 30, 31, 40}));
  EXPECT_EQ(row.positions, Tokens({0, 1, 2, 3, 4, 5}));
}

TEST(WindowSamples, TokenWithoutLossIsNoTarget) {
  const TokenVector source("test", counting(7), {0, 4}, {1, 0, 0, 1, 1, 1, 0});
  const WindowSamples stream = one_window(source, 6, Packing::kStream);
  EXPECT_TRUE(stream.may_ignore());
  EXPECT_EQ(row_of(stream, 0).targets, Tokens({kNone, kNone, 3, 4, 5, kNone}));
  EXPECT_EQ(row_of(one_window(source, 6, Packing::kMasked), 0).targets,
            Tokens({kNone, kNone, 3, kNone, 5, kNone}));
}

TEST(DocumentSamples, PacksByNextFitAndPadsTheRest) {
  // Documents of 3, 2, 9 and 1 tokens into rows of 4.
  const TokenVector source("test", counting(15), {0, 3, 5, 14});
  const DocumentTable documents(source);
  const auto in_order = [](std::int64_t place) { return place; };
  const PackedRows rows(documents, 4, in_order);
  std::vector<std::vector<std::int64_t>> firsts;
  std::vector<Segment> segments;
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    rows.cut(i, documents, in_order, segments);
    firsts.emplace_back();
    for (const Segment& segment : segments) firsts.back().push_back(segment.first);
  }
  EXPECT_EQ(firsts, (std::vector<std::vector<std::int64_t>>{{0}, {3}, {5}, {9}, {13, 14}}));
}

TEST(DocumentSamples, RowHoldsWholeDocumentsAndPaddingThatStandsAlone) {
  const TokenVector source("test", {7, 8, 9}, {0, 1});
  const Row row = row_of(DocumentSamples(source, 0, 6), 0);
  EXPECT_THAT(row.tokens, ::testing::AnyOf(Tokens({7, 8, 9, 0, 0, 0}), Tokens({8, 9, 7, 0, 0, 0})));
  const bool in_order = row.tokens[0] == 7;
  EXPECT_EQ(row.targets, in_order ? Tokens({kNone, 9, kNone, kNone, kNone, kNone})
                                  : Tokens({9, kNone, kNone, kNone, kNone, kNone}));
  EXPECT_EQ(row.positions, in_order ? Tokens({0, 0, 1, 0, 1, 2}) : Tokens({0, 1, 0, 0, 1, 2}));
}

TEST(DocumentSamples, LongDocumentIsCutWithoutLosingATarget) {
  const TokenVector source("test", counting(10));
  const DocumentSamples samples(source, 3, 4);
  ASSERT_EQ(samples.num_rows(0), 3);
  std::set<Tokens> targets;
  for (std::int64_t i = 0; i < 3; ++i) targets.insert(row_of(samples, i).targets);
  EXPECT_THAT(targets, ::testing::ElementsAre(Tokens({1, 2, 3, 4}), Tokens({5, 6, 7, 8}),
                                              Tokens({9, kNone, kNone, kNone})));
}

TEST(DocumentSamples, EpochsAndSeedsDifferInOrder) {
  const TokenVector source("test", counting(60), {0, 5, 17, 20, 31, 33, 41, 50, 55});
  std::set<std::vector<Tokens>> orders;
  for (const std::uint64_t seed : {1U, 2U}) {
    const DocumentSamples samples(source, seed, 16);
    std::int64_t sample = 0;
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<Tokens> rows;
      for (std::int64_t i = 0; i < samples.num_rows(epoch); ++i) {
        rows.push_back(row_of(samples, sample++).tokens);
      }
      orders.insert(rows);
    }
  }
  EXPECT_EQ(orders.size(), 10U);
}

// Computed by tools/golden/data_order.py from docs/data-order.md alone.
TEST(DocumentSamples, AgreesWithTheIndependentImplementation) {
  struct Known {
    std::uint64_t seed;
    std::int64_t num_tokens;
    std::vector<std::int64_t> starts;
    std::int64_t context, sample;
    std::vector<Segment> segments;
  };
  const std::vector<Known> all = {
#include "atoll/data/document_known_values.inc"
  };
  RowScratch scratch;
  for (const Known& known : all) {
    const TokenVector source("test", counting(known.num_tokens), known.starts);
    DocumentSamples(source, known.seed, known.context).cut(known.sample, scratch);
    EXPECT_EQ(scratch.segments, known.segments) << "sample " << known.sample;
  }
}

TEST(DocumentSamples, RefusesASplitWithoutTokens) {
  const TokenVector source("the train split", {});
  EXPECT_THAT(error_of([&] { DocumentSamples(source, 0, 4); }), HasSubstr("0 tokens"));
}

Tokens values(const Tensor& tensor) {
  const auto* data = tensor.data<std::int32_t>();
  return {data, data + tensor.num_elements()};
}

std::int64_t num_targets(const Batch& batch) {
  const Tokens targets = values(batch.targets);
  return batch.targets.num_elements() - std::count(targets.begin(), targets.end(), kNone);
}

TEST(Loader, EveryRankCountsTheTargetsOfTheWholeStep) {
  std::vector<std::uint8_t> mask;
  for (int i = 0; i < 400; ++i) mask.push_back(i % 7 < 3 && i % 50 > 9 ? 1 : 0);
  const TokenVector source("test", counting(400), {0, 33, 90, 91, 250}, mask);
  for (const Packing packing : {Packing::kStream, Packing::kMasked, Packing::kDocuments}) {
    const auto samples = make_samples(source, 4, 16, packing);
    std::vector<std::int64_t> counted(10, 0);
    std::vector<std::int64_t> said(10, 0);
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      Loader loader(*samples, {2, 12, {rank, rank + 3}});
      for (std::size_t i = 0; i < 20; ++i) {
        const Batch batch = loader.next();
        counted[i / 2] += num_targets(batch);
        if (said[i / 2] == 0) said[i / 2] = batch.step_targets;
        ASSERT_EQ(batch.step_targets, said[i / 2]);
      }
    }
    EXPECT_EQ(counted, said) << packing_name(packing);
  }
}

TEST(Loader, SaysNothingOfTargetsWhenAllAreThere) {
  const TokenVector source("test", counting(100), {0, 10});
  const auto samples = make_samples(source, 4, 16, Packing::kStream);
  const Batch batch = Loader(*samples, {}).next();
  EXPECT_EQ(batch.step_targets, 0);
  EXPECT_FALSE(batch.positions.defined());
}

TEST(Loader, AStepWithoutATargetSaysSo) {
  std::vector<std::uint8_t> mask(100, 0);
  mask[10] = 1;
  const TokenVector source("the train split", counting(100), {}, mask);
  const auto samples = make_samples(source, 10, 4, Packing::kStream);
  Loader loader(*samples, {});
  int with = 0;
  // 24 windows of 4, of which one has the target.
  for (int i = 0; i < 24; ++i) {
    const std::int64_t targets = loader.next().step_targets;
    EXPECT_TRUE(targets == 1 || targets == kNoTargets) << targets;
    with += targets == 1 ? 1 : 0;
  }
  EXPECT_EQ(with, 1);
}

TEST(Evaluation, PackingKeepsDocumentsApartAndCountsTheirTargets) {
  const std::vector<std::int64_t> starts = {0, 9, 10, 27};
  const TokenVector source("test", counting(40), starts);
  for (const Packing packing : {Packing::kMasked, Packing::kDocuments}) {
    EvaluationBatches batches(source, {.micro_batch = 2, .context = 8, .packing = packing});
    Tokens targets;
    while (const auto batch = batches.next()) {
      const Tokens x = values(batch->tokens);
      const Tokens y = values(batch->targets);
      const Tokens at = values(batch->positions);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_LE(at[i], static_cast<std::int32_t>(i % 8));
        if (y[i] == kNone) continue;
        ASSERT_EQ(y[i], x[i] + 1);
        targets.push_back(y[i]);
      }
    }
    Tokens expected;
    for (std::int32_t i = 0; i < 40; ++i) {
      if (std::find(starts.begin(), starts.end(), i) == starts.end()) expected.push_back(i);
    }
    EXPECT_EQ(targets, expected) << packing_name(packing);
    EXPECT_EQ(batches.num_targets(), static_cast<std::int64_t>(expected.size()));
  }
}

TEST(Evaluation, StopsAfterSoManyTargetsHoweverFewAWindowHas) {
  // Documents of 5 tokens and 4 targets: a row of 8 holds one of them.
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < 40; i += 5) starts.push_back(i);
  const TokenVector source("test", counting(40), starts);
  EvaluationOptions options = {.micro_batch = 1, .context = 8, .packing = Packing::kDocuments};
  for (const auto& [wanted, targets] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 4}, {4, 4}, {5, 8}, {16, 16}, {17, 20}, {32, 32}, {1000, 32}, {0, 32}}) {
    options.max_targets = wanted;
    EvaluationBatches batches(source, options);
    EXPECT_EQ(batches.num_targets(), targets) << wanted;
    std::int64_t found = 0;
    while (const auto batch = batches.next()) found += num_targets(*batch);
    EXPECT_EQ(found, targets) << wanted;
  }
  const TokenVector masked("test", counting(17), {},
                           {0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  EvaluationBatches both(masked, {.micro_batch = 1, .context = 8, .max_targets = 2});
  EXPECT_EQ(both.num_targets(), 2);
}

TEST(Evaluation, LooksOnlyAtTokensWithALoss) {
  const TokenVector source("test", counting(5), {}, {1, 0, 1, 0, 1});
  EvaluationBatches batches(source, {.micro_batch = 1, .context = 8});
  EXPECT_EQ(batches.num_targets(), 2);
  EXPECT_EQ(num_targets(*batches.next()), 2);
  const TokenVector none("the heldout split", counting(5), {}, {1, 0, 0, 0, 0});
  EXPECT_THAT(error_of([&] { EvaluationBatches(none, {1, 8}); }), HasSubstr("the heldout split"));
}

TEST(Packing, NamesAreReadBackAndOthersRefusedWithTheKey) {
  for (const Packing packing : {Packing::kStream, Packing::kMasked, Packing::kDocuments}) {
    EXPECT_EQ(parse_packing(packing_name(packing), "data.packing"), packing);
  }
  EXPECT_THAT(error_of([] { parse_packing("best", "data.packing"); }),
              HasSubstr("data.packing is \"best\""));
}

}  // namespace
}  // namespace atl::data
