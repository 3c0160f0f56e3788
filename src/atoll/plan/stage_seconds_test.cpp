#include "atoll/plan/stage_seconds.h"

#include <gtest/gtest.h>

#include <numeric>

#include "atoll/plan/estimate.h"
#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"

namespace atl::plan {

namespace {

double seconds(const StageModel& model, std::int64_t micro_batch) {
  const std::vector<StageSeconds> stages = model.stages(round_figures(), micro_batch);
  return std::accumulate(stages.begin(), stages.end(), 0.0, [](double sum, const StageSeconds& at) {
    return sum + at.forward + at.input + at.weight;
  });
}

StageModel model_of(const train::TrainConfig& config, int ranks) {
  const train::StateOptions options = train::state_options(config, 300, -1, ranks, 0);
  return {options.model, options.build, options.context};
}

// All of a pass grows with the rows that a rank has, and attention with these and with all keys.
TEST(StageSeconds, OfHalfASequenceAreHalfOfThoseOfAWholeOne) {
  const train::TrainConfig alone = train::load_recipe("", small_recipe());
  const train::TrainConfig shared = train::load_recipe("", small_recipe({"--parallel.cp=2"}));
  const double whole = seconds(model_of(alone, 1), 1);
  EXPECT_NEAR(seconds(model_of(shared, 2), 1), whole / 2, 1e-12 * whole);
}

// docs/context-parallel.md: (c - 1) / c of B T / c rows of q, k, v and of attended values, forward
// and backward; f32, 4 heads and 2 key-value heads of 8.
TEST(StageSeconds, BytesAroundAttentionAreTheFormula) {
  const std::vector<std::string> recipe = small_recipe({"--parallel.cp=2"});
  const StageModel model = model_of(train::load_recipe("", recipe), 2);
  double forward = 0, input = 0;
  for (const ContextBytes& stage : model.context_bytes(3)) {
    forward += stage.forward;
    input += stage.input;
  }
  constexpr double kLayers = 3, kRows = 3 * 16 / 2.0, kWidth = (4 + 2 * 2) * 8 + 4 * 8;
  EXPECT_DOUBLE_EQ(forward, kLayers * kRows / 2 * kWidth * 4);
  EXPECT_DOUBLE_EQ(input, forward);
}

// A ring: 2 (c - 1) B T / c rows of the key-value heads forward; backward again, and gradients in
// f32.
TEST(StageSeconds, BytesOfARingAreTheFormula) {
  constexpr double kLayers = 3, kRows = 3 * 16 / 2.0, kWidth = 2 * 2 * 8;
  for (const double size : {4.0, 2.0}) {
    const std::vector<std::string> recipe =
        small_recipe({"--parallel.cp=2", "--parallel.cp_attention=ring",
                      size == 4 ? "--train.dtype=f32" : "--train.dtype=bf16"});
    const StageModel model = model_of(train::load_recipe("", recipe), 2);
    double forward = 0, input = 0;
    for (const ContextBytes& stage : model.context_bytes(3)) {
      forward += stage.forward;
      input += stage.input;
    }
    EXPECT_DOUBLE_EQ(forward, kLayers * kRows * kWidth * size);
    EXPECT_DOUBLE_EQ(input, kLayers * kRows * kWidth * (size + 4));
  }
}

// docs/expert-parallel.md: (e - 1) / e of T K rows there and back, forward, in B and in W.
TEST(StageSeconds, BytesAroundExpertsAreTheFormula) {
  const std::vector<std::string> recipe =
      small_recipe({"--model.family=mixtral", "--model.num_experts=4",
                    "--model.num_experts_per_tok=2", "--parallel.ep=4", "--train.micro_batch=1"});
  const StageModel model = model_of(train::load_recipe("", recipe), 4);
  double forward = 0, input = 0, weight = 0;
  for (const ExpertBytes& stage : model.expert_bytes(3)) {
    forward += stage.forward;
    input += stage.input;
    weight += stage.weight;
  }
  constexpr double kLayers = 3, kChoices = 3 * 16 * 2, kWidth = 32;
  EXPECT_DOUBLE_EQ(forward, kLayers * 2 * 0.75 * kChoices * kWidth * 4);
  EXPECT_DOUBLE_EQ(input, forward);
  EXPECT_DOUBLE_EQ(weight, forward);
}

// A rank that shares products too has rows as wide, and all choices of its part of the sequences.
TEST(StageSeconds, BytesAroundExpertsAreTheFormulaBesideOtherAxes) {
  for (const auto& [axis, parts] : {std::pair("--parallel.tp=2", 1), {"--parallel.cp=2", 2}}) {
    const std::vector<std::string> recipe = small_recipe(
        {"--model.family=mixtral", "--model.num_experts=4", "--model.num_experts_per_tok=2",
         "--parallel.ep=2", "--train.micro_batch=1", axis});
    const StageModel model = model_of(train::load_recipe("", recipe), 4);
    double forward = 0;
    for (const ExpertBytes& stage : model.expert_bytes(3)) forward += stage.forward;
    const double kLayers = 3, kChoices = 3 * 16 * 2, kWidth = 32;
    EXPECT_DOUBLE_EQ(forward, kLayers * 2 * 0.5 * kChoices / parts * kWidth * 4) << axis;
  }
}

// What no expert is, all ranks that share experts sum: with shared products, a part of it.
TEST(StageSeconds, CountsWhatRanksThatShareExpertsHaveAlike) {
  const auto beside = [](const std::vector<std::string>& layout, int ranks) {
    std::vector<std::string> all = {"--model.family=mixtral", "--model.num_experts=4",
                                    "--train.micro_batch=1"};
    all.insert(all.end(), layout.begin(), layout.end());
    return model_of(train::load_recipe("", small_recipe(all)), ranks).elements_beside_experts();
  };
  EXPECT_EQ(beside({}, 1), 0);
  EXPECT_EQ(beside({"--parallel.tp=2"}, 2), 0);
  const double whole = beside({"--parallel.ep=2"}, 2);
  const double part = beside({"--parallel.ep=2", "--parallel.tp=2"}, 4);
  EXPECT_GT(part, whole / 2);  // norms and routers are whole
  EXPECT_LT(part, 0.6 * whole);
}

// Rows of two chosen experts of four, each of the width of the plain MLP: about twice its products.
TEST(StageSeconds, ExpertsTakeTheTimeOfThoseThatATokenGoesThrough) {
  const auto with = [](const std::string& chosen) {
    return seconds(model_of(train::load_recipe(
                                "", small_recipe({"--model.family=mixtral", "--model.num_experts=4",
                                                  "--model.intermediate_size=512", chosen})),
                            1),
                   1);
  };
  const double plain = seconds(
      model_of(train::load_recipe("", small_recipe({"--model.intermediate_size=512"})), 1), 1);
  const double one = with("--model.num_experts_per_tok=1");
  const double two = with("--model.num_experts_per_tok=2");
  EXPECT_GT(one, plain);
  EXPECT_LT(one, 1.2 * plain);
  EXPECT_GT(two, 1.5 * plain);
  EXPECT_LT(two, 2.2 * plain);
}

}  // namespace

}  // namespace atl::plan
