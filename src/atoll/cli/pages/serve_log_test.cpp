#include "atoll/cli/pages/serve_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/data/testing.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/serve/api/testing.h"

namespace atl::cli {
namespace {

using serve::api::ScriptedGenerator;
using ::testing::HasSubstr;

double number(const metrics::Record& record, const std::string& name) {
  for (const auto& [key, value] : record.values) {
    if (key != name) continue;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    return std::get<double>(value);
  }
  return -1;
}

TEST(ServeLog, GoesOnWhereAnEarlierOneEnded) {
  const data::testing::TemporaryDirectory directory;
  const std::filesystem::path log = directory.path() / "a" / "log";
  serve::api::RequestTimes times;
  const ScriptedGenerator generator([](const serve::GenerationRequest&) { return std::vector{1}; });
  constexpr std::chrono::hours kNever{1};
  times.first_token.observe(0.02);
  {
    const ServeLog one(log, kNever, times, generator);
    times.first_token.observe(4.0);
    try {
      const ServeLog two(log, kNever, times, generator);
      FAIL() << "two servers write into one log";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
    }
  }
  { const ServeLog two(log, kNever, times, generator); }
  const auto records = metrics::read_jsonl(log / "metrics.jsonl");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_GT(number(records[0], "latency/first_token_p50_s"), 2.5);  // what came before is not its
  EXPECT_EQ(number(records[1], "latency/first_token_p50_s"), -1);
  EXPECT_GE(records[0].step, 1);
  EXPECT_GT(records[1].step, records[0].step);
}

TEST(ServeLog, LeavesARunAlone) {
  const data::testing::TemporaryDirectory directory;
  std::ofstream(directory.path() / "settings.toml") << "\n";
  serve::api::RequestTimes times;
  const ScriptedGenerator generator([](const serve::GenerationRequest&) { return std::vector{1}; });
  try {
    const ServeLog log(directory.path(), std::chrono::hours(1), times, generator);
    FAIL() << "a run's directory is taken for a log";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is the directory of a training run"));
  }
}

}  // namespace
}  // namespace atl::cli
