#include "atoll/train/progress/expert_report.h"

#include <gtest/gtest.h>

#include "atoll/comm/world.h"
#include "atoll/train/progress/progress.h"

namespace atl::train {
namespace {

using nn::ExpertLoad;

std::vector<std::unique_ptr<ExpertLoad>> two_blocks() {
  std::vector<std::unique_ptr<ExpertLoad>> loads;
  loads.push_back(std::make_unique<ExpertLoad>(1, 4));
  loads.push_back(std::make_unique<ExpertLoad>(3, 4));
  loads[0]->sums = {5, 5, 5, 5, 10, 0, 20, 1};
  loads[1]->sums = {2, 10, 4, 4, 10, 2, 22, 3};
  return loads;
}

TEST(ExpertReport, NamesTheBusiestExpertsBlockAndClears) {
  const auto loads = two_blocks();
  const ExpertReport report = take_expert_report(loads, nullptr);
  EXPECT_EQ(report.most_over_mean, 2);
  EXPECT_EQ(report.block, 3);
  EXPECT_EQ(report.least_over_mean, 0.4);
  EXPECT_EQ(report.dropped_fraction, 2.0 / 40);
  EXPECT_EQ(report.balance_loss, 42.0 / 20);
  EXPECT_EQ(report.z_loss, 4.0 / 20);
  EXPECT_EQ(loads[1]->chose(1), 0);
  EXPECT_EQ(take_expert_report(loads, nullptr).balance_loss, 0) << "nothing since";
}

TEST(ExpertReport, AddsUpWhatTheRanksSaw) {
  comm::run_threads(3, {}, [](comm::World& world) {
    auto loads = two_blocks();
    // Busy on one rank, even on all together.
    if (world.rank() > 0) loads[1]->sums = {9, 5, 8, 8, 15, 0, 30, 0};
    const ExpertReport report = take_expert_report(loads, &world.all());
    EXPECT_EQ(report.most_over_mean, 1);
    EXPECT_EQ(report.least_over_mean, 1);
    EXPECT_EQ(report.dropped_fraction, 2.0 / 140);
  });
}

TEST(ExpertReport, TheStepLineSaysWhoIsBusiestAndWhatIsDropped) {
  StepReport line = {.step = 1, .total_steps = 2};
  EXPECT_EQ(format_step_line(line).find("expert"), std::string::npos);
  line.experts = {.most_over_mean = 1.375, .block = 5};
  EXPECT_NE(format_step_line(line).find("  busiest expert 1.38x (block 5)  left"),
            std::string::npos);
  line.experts->dropped_fraction = 0.021;
  EXPECT_NE(format_step_line(line).find("(block 5)  dropped 2.1%  left"), std::string::npos);
}

}  // namespace
}  // namespace atl::train
