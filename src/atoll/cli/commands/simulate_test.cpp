#include "atoll/cli/commands/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Simulate, LinksAndDurationsHaveUnits) {
  EXPECT_DOUBLE_EQ(parse_duration("40ms", "--x"), 0.04);
  EXPECT_DOUBLE_EQ(parse_duration("2h", "--x"), 7200);
  EXPECT_DOUBLE_EQ(parse_duration("1.5min", "--x"), 90);
  const island::SimulatedLink link = parse_link("100Mbit/s,40ms");
  EXPECT_DOUBLE_EQ(link.bits_per_second, 1e8);
  EXPECT_DOUBLE_EQ(link.latency, 0.04);
  EXPECT_DOUBLE_EQ(parse_link("unlimited,0s").bits_per_second, 0);
}

TEST(Simulate, WhatIsNotUnderstoodIsNamed) {
  EXPECT_THAT(message_of([] { parse_duration("40", "--mtbf"); }), HasSubstr("--mtbf \"40\""));
  EXPECT_THAT(message_of([] { parse_duration("-1s", "--mtbf"); }), HasSubstr("--mtbf \"-1s\""));
  EXPECT_THAT(message_of([] { parse_duration("infs", "--mtbf"); }), HasSubstr("infs"));
  EXPECT_THAT(message_of([] { parse_link("fast"); }), HasSubstr("100Mbit/s,40ms"));
  EXPECT_THAT(message_of([] { parse_link("3MB/s,1ms"); }), HasSubstr("3MB/s"));
  EXPECT_THAT(message_of([] { parse_link("0bit/s,1ms"); }), HasSubstr("nothing gets through"));
}

TEST(Simulate, TheReportSaysWhatHappened) {
  island::SimulationOptions options;
  options.num_islands = 3;
  options.parameters = 1e6;
  options.jitter = 0.02;  // below what makes islands count as unlike
  options.plan = {.num_fragments = 1, .inner_steps = 10, .total_batches = 90, .min_islands = 3};
  const island::SimulationReport report = island::simulate(options, 7);
  ASSERT_TRUE(report.violations.empty()) << report.violations.front();
  const std::string text = describe(options, report);
  EXPECT_THAT(text, HasSubstr("seed 7"));
  EXPECT_THAT(text, HasSubstr("3 committed, 0 attempts abandoned"));
  EXPECT_THAT(text, HasSubstr("90 of 90 committed once each"));
}

TEST(Simulate, SaysHowFarItIs) {
  island::SimulationOptions options;
  options.num_islands = 3;
  options.jitter = 0.02;
  options.plan = {.num_fragments = 1, .inner_steps = 10, .total_batches = 900, .min_islands = 3};
  std::vector<std::string> lines;
  const auto take = [&](const std::string& line) { lines.push_back(line); };
  options.progress = tell_progress(900, std::chrono::milliseconds(0), take);
  island::simulate(options, 7);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(), MatchesRegex("[0-9]+% simulated: [0-9]+ outer steps? committed in "
                                          "[0-9:]+ of the run's time"));
  // Not one for each time it is called.
  lines.clear();
  options.progress = tell_progress(900, std::chrono::hours(1), take);
  island::simulate(options, 7);
  EXPECT_THAT(lines, IsEmpty());
}

TEST(Simulate, ASingleThingIsNoPlural) {
  const island::SimulationOptions options = {.num_islands = 1, .plan = {.num_fragments = 1}};
  EXPECT_THAT(describe(options, {.aborts = 1, .evictions = 1}),
              AllOf(HasSubstr(", 1 fragment\n"), HasSubstr(", 1 attempt abandoned,"),
                    HasSubstr(", 1 island turned out")));
}

}  // namespace
}  // namespace atl::cli
