// The planner and things that it does not know: it costs them by what they say of themselves, or
// refuses them by name.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/plan/testing.h"
#include "atoll/train/registration_testing.h"

namespace atl::plan {
namespace {

using ::testing::HasSubstr;

std::string refusal(const Question& question) {
  try {
    rank_layouts(question);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

double update_seconds(const std::string& optimizer) {
  const Ranking ranking = rank_layouts(small_question(1, {"--optim.kind=" + optimizer}));
  return ranking.rows.front().estimate.update_seconds;
}

TEST(PlanOfTheUnknown, EveryOptimizerOfTheProgramIsKnown) {
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    for (const char* dtype : {"f32", "bf16"}) {
      const Question question = small_question(
          1, {fmt::format("--optim.kind={}", kind.name), fmt::format("--train.dtype={}", dtype)});
      EXPECT_EQ(refusal(question), "no error") << kind.name << " " << dtype;
    }
  }
}

TEST(PlanOfTheUnknown, AnOpIsThatOfOneOptimizerAndOneKindOfMasters) {
  const OpCase masters{.name = "adamw/masters"}, plain{.name = "adamw"};
  optim::OptimizerOptions options{.kind = "adamw"};
  EXPECT_TRUE(is_update_of(masters, options));
  EXPECT_TRUE(is_update_of(plain, options));
  options.masters = optim::Masters::kStochastic;
  EXPECT_FALSE(is_update_of(masters, options));
  options.kind = "adam";
  EXPECT_FALSE(is_update_of(plain, options)) << "of which its name is the beginning";
}

TEST(PlanOfTheUnknown, AnOptimizerCostsTheBytesOfItsState) {
  const optim::AddedOptimizer added(train::testing::sign_descent());
  const double sign = update_seconds("test_sign"), adamw = update_seconds("adamw");
  EXPECT_GT(sign, 0.2 * adamw);
  EXPECT_LT(sign, adamw);
}

TEST(PlanOfTheUnknown, AnOptimizerOfWholeMatricesIsRefused) {
  const optim::AddedOptimizer added(train::testing::sign_descent(/*whole_matrices=*/true));
  EXPECT_THAT(refusal(small_question(1, {"--optim.kind=test_sign"})),
              HasSubstr("the planner has no figures of optim.kind = test_sign"));
}

TEST(PlanOfTheUnknown, AFamilyWithOtherBlocksIsRefused) {
  const nn::AddedFamily added(train::testing::squared_relu_family());
  EXPECT_THAT(refusal(small_question(1, {"--model.family=test_relu2"})),
              HasSubstr("the planner has no figures of squared_relu, the activation of the family "
                        "test_relu2"));
}

}  // namespace
}  // namespace atl::plan
