#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

class Bf16Choice : public TrainerTest {
 protected:
  std::string end_of(const std::string& name, const std::string& bf16,
                     std::int64_t stop_after = -1) {
    const TrainOutcome outcome =
        train(name, {"--train.dtype=bf16", "--train.steps=8", "--device.bf16=" + bf16}, stop_after);
    return tensors(outcome.checkpoint);
  }
};

// What is measured may come out otherwise at each start; one of the two is not what `auto` measures
// here.
TEST_F(Bf16Choice, ARunGoesOnAsItBegan) {
  if (!ops::has_bf16_arithmetic(ops::Bf16Arithmetic::kLibrary)) {
    GTEST_SKIP() << "there is one choice on this CPU";
  }
  std::vector<std::string> wholes;
  for (const std::string began : {"f32", "library", "amx"}) {
    if (!ops::has_bf16_arithmetic(ops::bf16_arithmetic_named(began))) continue;
    wholes.push_back(end_of(began + "-whole", began));
    end_of(began, began, /*stop_after=*/4);
    EXPECT_TRUE(end_of(began, "auto") == wholes.back()) << began;
  }
  EXPECT_FALSE(wholes[0] == wholes[1]) << "or nothing is shown";
}

TEST_F(Bf16Choice, ASettingCountsMoreThanWhatTheRunBeganWith) {
  if (!ops::has_bf16_arithmetic(ops::Bf16Arithmetic::kLibrary)) {
    GTEST_SKIP() << "there is one choice on this CPU";
  }
  end_of("run", "library", /*stop_after=*/4);
  const TrainOutcome outcome =
      train("run", {"--train.dtype=bf16", "--train.steps=8", "--device.bf16=f32"});
  EXPECT_EQ(read_position(outcome.checkpoint).bf16, "f32");
}

}  // namespace
}  // namespace atl::train
