#include "atoll/serve/stages/serving_plan.h"

#include <gtest/gtest.h>

#include "atoll/serve/batch/batch_testing.h"
#include "atoll/serve/stages/layer_split.h"

namespace atl::serve::stages {
namespace {

// Reads a weight in a second, and never multiplies for longer.
ServingNeeds needs(std::vector<StepLayers> stages) {
  return {.bytes_per_weight = 1,
          .slots = 6,
          .max_positions = 32,
          .memory_bytes_per_s = 1,
          .flops_per_s = 1e9,
          .stages = std::move(stages),
          .round_trip_s = 100,
          .link_bytes_per_s = 1};
}

class ServingPlans : public testing::Test {
 protected:
  const nn::ModelConfig config_ = test::tiny_config("llama");
  const LayerBytes bytes_ = layer_bytes(config_);
  const double layer_ = bytes_.layers.front() / 4;  // weights
  const double head_ = bytes_.head / 4;
  const double cached_ =
      2.0 * 12 * 4;  // bytes of a position in a layer: keys and values of 2 heads
};

TEST_F(ServingPlans, OneMachineReadsItsWeightsOnceAStep) {
  const ServingPlan plan = plan_serving(config_, needs({{0, 2}}));
  ASSERT_EQ(plan.stages.size(), 1U);
  EXPECT_DOUBLE_EQ(plan.stages[0].weight_bytes, bytes_.embedding / 4 + 2 * layer_ + head_);
  EXPECT_DOUBLE_EQ(plan.stages[0].cache_bytes, 6 * 32 * 2 * cached_);
  // One row reads the keys and values of a context that is half full.
  EXPECT_DOUBLE_EQ(plan.seconds_of_token_alone, 2 * layer_ + head_ + 16 * 2 * cached_);
  EXPECT_DOUBLE_EQ(plan.tokens_per_s_alone, 1 / plan.seconds_of_token_alone);
  EXPECT_EQ(plan.groups, 1);
  EXPECT_DOUBLE_EQ(plan.seconds_of_token, 2 * layer_ + head_ + 6 * 16 * 2 * cached_);
  EXPECT_DOUBLE_EQ(plan.tokens_per_s, 6 / plan.seconds_of_token);
}

TEST_F(ServingPlans, ProductsMayTakeLonger) {
  ServingNeeds slow = needs({{0, 2}});
  slow.flops_per_s = 0.5;
  const ServingPlan plan = plan_serving(config_, slow);
  EXPECT_DOUBLE_EQ(plan.seconds_of_token, 6 * 2 * (2 * layer_ + head_) / 0.5);
}

TEST_F(ServingPlans, StagesAddTheirLinksAndShareTheWork) {
  const ServingPlan plan = plan_serving(config_, needs({{0, 1}, {1, 2}}));
  ASSERT_EQ(plan.stages.size(), 2U);
  EXPECT_DOUBLE_EQ(plan.stages[0].weight_bytes, bytes_.embedding / 4 + layer_);
  EXPECT_DOUBLE_EQ(plan.stages[1].weight_bytes, layer_ + head_);
  const double row = 24 * 4;  // bytes of a hidden state, which one of three links carries
  const double links = 3 * 50 + row;
  const double first = layer_ + 16 * cached_, second = layer_ + head_ + 16 * cached_;
  EXPECT_DOUBLE_EQ(plan.seconds_of_token_alone, first + second + links);
  EXPECT_EQ(plan.groups, 2);  // first + second + links is less than twice the second
  EXPECT_EQ(plan.rows_of_group, 3);
  const double full = layer_ + head_ + 3 * 16 * cached_;
  const double pass = layer_ + 3 * 16 * cached_ + full + 3 * 50 + 3 * row;
  EXPECT_DOUBLE_EQ(plan.seconds_of_token, std::max(pass, 2 * full));
}

}  // namespace
}  // namespace atl::serve::stages
