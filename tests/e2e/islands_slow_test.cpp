// Islands that are lost, stopped, or come late, by the program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "islands_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Finished;
using e2e::Islands;
using e2e::Program;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Islands, AKilledOneComesBack) {
  Program run(islanded("run", 2, 400, {"--checkpoint.every=20"}));
  ASSERT_TRUE(took(within("run", 2), 40));
  const pid_t victim = island(2);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = run.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("was killed by signal 9; starting it again (1 of 3)"));
  EXPECT_EQ(model(within("run", 1)), model(within("run", 2)));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Islands, ASignalStopsThemAndTheyGoOn) {
  Program run(islanded("run", 2, 200));
  ASSERT_TRUE(took(within("run", 1), 25));
  run.send(SIGINT);
  for (const pid_t pid : processes()) ::kill(pid, SIGINT);  // to all of the terminal's group
  const Finished stopped = run.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(processes(), IsEmpty());
  const Finished finished = atoll(islanded("run", 2, 200));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(model(within("run", 1)), model(within("run", 2)));
}

}  // namespace
}  // namespace atl
