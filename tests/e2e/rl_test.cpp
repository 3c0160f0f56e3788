// `atoll rl` from outside: it is killed and goes on, and says what is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rl_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Finished;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RlProgram : public e2e::Rl {};

TEST_F(RlProgram, GoesOnAfterKills) {
  survives(3, {});
}

TEST_F(RlProgram, SaysWhatItDoes) {
  const Finished finished = atoll(rl_command("run", {"--train.steps=2", "--rl.kl=0.02"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("step 2/2"), HasSubstr("  reward 0."),
                                  HasSubstr("no signal"), HasSubstr("  KL ")));
  EXPECT_THAT(finished.err, HasSubstr("64 rows, 4 of 4 completions in a step"));
  // What was trained is a model directory like any other.
  const Finished answer = atoll({"generate", path("run"), "--prompt", "1+1=", "--max-tokens=3"});
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
}

TEST_F(RlProgram, RewardProgramsThatMisbehaveEarnNothing) {
  const Finished finished =
      atoll(rl_command("run", {"--train.steps=1", "--rl.rewards=program", "--rl.program_s=0.5",
                               "--rl.program=sh,-c,sleep 600 & sleep 600 & yes > /dev/null"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("takes longer than rl.program_s = 0.5 s"));
  EXPECT_THAT(finished.out, HasSubstr("reward 0.000  no signal 100%"));
}

TEST_F(RlProgram, RefusesTheOtherCommand) {
  const Finished train = atoll({"train", rl_recipe(), "--run.dir=" + path("no")});
  EXPECT_EQ(train.exit_code, 2);
  EXPECT_THAT(train.err, HasSubstr("is for `atoll rl`"));
  const Finished rl = atoll({"rl", recipe()});
  EXPECT_EQ(rl.exit_code, 2);
  EXPECT_THAT(rl.err, HasSubstr("rl.prompts is not set"));
}

}  // namespace
}  // namespace atl
