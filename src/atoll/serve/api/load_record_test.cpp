#include "atoll/serve/api/load_record.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace atl::serve::api {
namespace {

double number(const metrics::Record& record, const std::string& name) {
  for (const auto& [key, value] : record.values) {
    if (key != name) continue;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    return std::get<double>(value);
  }
  return -1;
}

TEST(Histogram, QuantilesLieWhereTheTimesDo) {
  Histogram histogram;
  EXPECT_EQ(histogram.counts().total(), 0U);
  for (int i = 0; i < 90; ++i) histogram.observe(0.02);
  for (int i = 0; i < 10; ++i) histogram.observe(4.0);
  const HistogramCounts counts = histogram.counts();
  EXPECT_EQ(counts.total(), 100U);
  // Buckets (0.01, 0.025] and (2.5, 5].
  EXPECT_DOUBLE_EQ(counts.quantile(0.45), 0.01 + 0.015 * 0.5);
  EXPECT_DOUBLE_EQ(counts.quantile(0.95), 2.5 + 2.5 * 0.5);
  EXPECT_EQ((counts - counts).total(), 0U);
  histogram.observe(1e6);
  EXPECT_EQ((histogram.counts() - counts).quantile(0.5), Histogram::kBounds.back());
}

TEST(LoadRecord, HasRatesOfItsTimeAlone) {
  LoadCounts before;
  before.stats = {.finished = 10, .prompt_tokens = 100, .new_tokens = 1000, .steps = 50};
  LoadCounts now = before;
  now.stats.running = 3;
  now.stats.finished = 14;
  now.stats.rejected = 2;
  now.stats.prompt_tokens = 140;
  now.stats.cached_tokens = 10;
  now.stats.new_tokens = 1600;
  now.stats.blocks = 8;
  now.stats.blocks_in_use = 6;
  const metrics::Record record = load_record(before, now, 2.0);
  EXPECT_EQ(number(record, "requests/running"), 3);
  EXPECT_EQ(number(record, "requests/finished_per_s"), 2);
  EXPECT_EQ(number(record, "requests/rejected"), 2);
  EXPECT_EQ(number(record, "tokens/prompt_per_s"), 20);
  EXPECT_EQ(number(record, "tokens/generated_per_s"), 300);
  EXPECT_EQ(number(record, "tokens/cached_share"), 0.25);
  EXPECT_EQ(number(record, "cache/running_share"), 0.75);
  EXPECT_EQ(number(record, "latency/first_token_p50_s"), -1);
  EXPECT_EQ(number(record, "tokens/right_draft_share"), -1);
}

}  // namespace
}  // namespace atl::serve::api
