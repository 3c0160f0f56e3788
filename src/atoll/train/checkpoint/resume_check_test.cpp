#include "atoll/train/checkpoint/resume_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a run of so many steps, at `step`, had as settings.
Position position_of(const std::vector<std::string>& overrides, std::int64_t step) {
  TrainConfig config;
  Settings settings = make_settings(config);
  for (const std::string& argument : overrides) settings.override(argument);
  Position position;
  position.step = step;
  position.settings = settings.key_values();
  return position;
}

TrainConfig config_of(const std::vector<std::string>& overrides) {
  TrainConfig config;
  Settings settings = make_settings(config);
  for (const std::string& argument : overrides) settings.override(argument);
  return config;
}

TEST(GoingOn, ALongerCosineTellsFromWhatToWhatTheLearningRateJumps) {
  const Position position =
      position_of({"--train.steps=400", "--optim.lr=1e-3", "--optim.min_lr_ratio=0.1"}, 400);
  const TrainConfig longer =
      config_of({"--train.steps=800", "--optim.lr=1e-3", "--optim.min_lr_ratio=0.1"});
  EXPECT_THAT(
      describe_rate_jump(longer, position),
      AllOf(HasSubstr("after step 400 the learning rate jumps from 1.00e-04 to 5.49e-04"),
            HasSubstr("is now cosine over 800 steps"), HasSubstr("was cosine over 400 steps"),
            HasSubstr("--optim.schedule=constant --optim.lr=1.00e-04"),
            HasSubstr("optim.schedule = wsd")));
}

TEST(GoingOn, WhereTheLearningRateStaysNothingIsTold) {
  const Position cosine = position_of({"--train.steps=400", "--optim.lr=1e-3"}, 200);
  EXPECT_EQ(describe_rate_jump(config_of({"--train.steps=400", "--optim.lr=1e-3"}), cosine), "");
  const Position wsd =
      position_of({"--train.steps=400", "--optim.schedule=wsd", "--optim.lr=1e-3"}, 200);
  EXPECT_EQ(describe_rate_jump(
                config_of({"--train.steps=800", "--optim.schedule=wsd", "--optim.lr=1e-3"}), wsd),
            "");
  const Position flat =
      position_of({"--train.steps=400", "--optim.schedule=constant", "--optim.lr=1e-3"}, 400);
  EXPECT_EQ(
      describe_rate_jump(
          config_of({"--train.steps=800", "--optim.schedule=constant", "--optim.lr=1e-3"}), flat),
      "");
}

TEST(GoingOn, AnotherScheduleIsToldAndAnotherPeakIsWhatWasAskedFor) {
  const Position position = position_of({"--train.steps=400", "--optim.lr=1e-3"}, 300);
  EXPECT_THAT(describe_rate_jump(
                  config_of({"--train.steps=400", "--optim.lr=1e-3", "--optim.schedule=constant"}),
                  position),
              HasSubstr(" to 1.00e-03: the schedule is now constant over 400 steps"));
  EXPECT_EQ(describe_rate_jump(config_of({"--train.steps=800", "--optim.lr=2e-3"}), position), "");
}

}  // namespace
}  // namespace atl::train
