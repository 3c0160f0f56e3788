// Runs that are stopped in the middle: what the same command then makes is bit for bit what it
// would have made at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "train_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::Finished;
using e2e::Program;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;

// So many steps that a run does not end before its signal comes. One thread: the tests run beside
// others, and what a tiny step has for a second thread does not pay for waiting for it.
constexpr std::int64_t kLongSteps = 4000;
const std::vector<std::string> kLong = {fmt::format("--train.steps={}", kLongSteps),
                                        "--device.threads=1"};

TEST_F(Train, CtrlCSavesAndTheSameCommandGoesOn) {
  trained("whole", kLong);
  Program program(command("run", kLong));
  ASSERT_TRUE(trains_soon("run"));
  program.send(SIGINT);
  const Finished stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("stopped by Ctrl-C"), HasSubstr("goes on from there")));
  const auto steps = ckpt::checkpoint_steps(root_.path / "run" / "checkpoints");
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_LT(steps[0], kLongSteps) << "the signal came too late";
  EXPECT_THAT(trained("run", kLong).err, HasSubstr(fmt::format("(step {})", steps[0])));
  EXPECT_EQ(tensors("run", kLongSteps), tensors("whole", kLongSteps));
}

TEST_F(Train, WhatASchedulerSendsSavesToo) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    const std::string name = fmt::format("run-{}", signal);
    Program program(command(name, kLong));
    ASSERT_TRUE(trains_soon(name));
    program.send(signal);
    program.send(SIGTERM);
    const Finished stopped = program.wait();
    // Of two that are pending at once either may come first.
    EXPECT_TRUE(stopped.exit_code == 128 + signal || stopped.exit_code == 143) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("goes on from there"));
    EXPECT_EQ(ckpt::checkpoint_steps(root_.path / name / "checkpoints").size(), 1U);
  }
}

TEST_F(Train, Usr1MaySaveAndGoOn) {
  std::vector<std::string> saving = kLong;
  saving.emplace_back("--run.on_signal=save");
  Program program(command("run", saving));
  ASSERT_TRUE(trains_soon("run"));
  program.send(SIGUSR1);
  const auto saved = [&] { return ckpt::checkpoint_steps(root_.path / "run" / "checkpoints"); };
  EXPECT_TRUE(soon([&] { return !saved().empty(); })) << program.errors();
  const Finished finished = program.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("SIGUSR1: the run saves after this step and goes on"));
  EXPECT_EQ(saved().size(), 2U) << "that one and the last";
}

TEST_F(Train, AKilledRunGoesOnFromItsLastCheckpoint) {
  std::vector<std::string> saving = kLong;
  saving.emplace_back("--checkpoint.every=100");
  trained("whole", kLong);
  std::int64_t newest = 0;
  for (int i = 0; i < 3; ++i) {
    Program program(command("run", saving));
    ASSERT_TRUE(soon([&] {
      const auto steps = ckpt::checkpoint_steps(root_.path / "run" / "checkpoints");
      return !steps.empty() && steps.back() > newest;
    }));
    // Somewhere in the steps after a checkpoint, or while the next one is written.
    std::this_thread::sleep_for(std::chrono::milliseconds(11 * i));
    program.send(SIGKILL);
    ASSERT_EQ(program.wait().exit_code, 137) << "the signal came too late";
    newest = ckpt::checkpoint_steps(root_.path / "run" / "checkpoints").back();
  }
  trained("run", kLong);
  EXPECT_EQ(tensors("run", kLongSteps), tensors("whole", kLongSteps));
  for (const auto& entry : fs::directory_iterator(root_.path / "run" / "checkpoints")) {
    EXPECT_TRUE(ckpt::parse_checkpoint_name(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace atl
