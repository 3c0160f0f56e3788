#include "atoll/train/progress/interrupt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "atoll/base/processes/stop_signals.h"
#include "atoll/train/trainer_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Handlers are the process's: what a test leaves goes back.
class Interrupt : public TrainerTest {
 protected:
  void TearDown() override {
    for (const int signal : kStopSignals) std::signal(signal, SIG_DFL);
    TrainerTest::TearDown();
  }
};

// What is printed while `action` runs, past every buffer.
std::string printed(const std::function<void()>& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(Interrupt, EveryStopSignalAsksAndACopyOfItDoesNotKill) {
  for (const int signal : kStopSignals) {
    const InterruptGuard guard;
    EXPECT_EQ(guard.signal(), 0);
    std::raise(signal);
    EXPECT_EQ(guard.signal(), signal);
    for (const int copy : kStopSignals) std::raise(copy);
    EXPECT_EQ(guard.signal(), signal);
  }
}

TEST_F(Interrupt, ACopyThatComesAfterTheGuardDoesNotKillEither) {
  {
    const InterruptGuard guard;
    std::raise(SIGTERM);
  }
  std::raise(SIGTERM);
  const InterruptGuard next;
  EXPECT_EQ(next.signal(), 0) << "another guard begins anew";
}

TEST_F(Interrupt, WithoutASignalAllIsAsBeforeAfterTheGuard) {
  { const InterruptGuard guard; }
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << signal;
  }
}

TEST_F(Interrupt, WhatNohupIgnoresStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  const InterruptGuard guard;
  std::raise(SIGHUP);
  EXPECT_EQ(guard.signal(), 0);
  EXPECT_TRUE(is_ignored(SIGHUP));
}

TEST_F(Interrupt, TheFirstSignalSaysAtOnceWhatHappens) {
  const InterruptGuard guard("the run saves");
  EXPECT_THAT(printed([] { std::raise(SIGINT); }),
              AllOf(StartsWith("info: Ctrl-C: the run saves; "), HasSubstr("5 s")));
  EXPECT_THAT(printed([] { std::raise(SIGTERM); }), IsEmpty());
  EXPECT_EQ(printed([] { std::raise(SIGINT); }), "info: Ctrl-C: the run saves, as asked\n");
}

TEST_F(Interrupt, AGuardWithoutAPlanIsSilent) {
  const InterruptGuard guard;
  EXPECT_THAT(printed([] { std::raise(SIGINT); }), IsEmpty());
}

TEST_F(Interrupt, Usr1MayAskForACheckpointAlone) {
  save_at_usr1(/*is_told=*/true);
  const std::int64_t before = num_save_requests();
  const InterruptGuard guard;
  EXPECT_THAT(printed([] { std::raise(SIGUSR1); }), HasSubstr("SIGUSR1: the run saves "));
  EXPECT_EQ(guard.signal(), 0);
  EXPECT_EQ(num_save_requests(), before + 1);
}

class AskerToSave final : public metrics::Sink {
 public:
  void write(const metrics::Record& record) override {
    if (record.step == 7 || record.step == 12) std::raise(SIGUSR1);
  }
  void flush() override {}
};

TEST_F(Interrupt, ARunThatIsAskedToSaveDoesSoAndGoesOn) {
  save_at_usr1(/*is_told=*/false);
  TrainConfig config;
  Settings settings = make_settings(config);
  configure(settings, "run", {"--run.on_signal=save", "--checkpoint.keep=10"});
  AskerToSave asker;
  Trainer trainer(config, settings);
  trainer.add_sink(asker);
  EXPECT_EQ(trainer.run().step, 20);
  EXPECT_EQ(ckpt::checkpoint_steps(root_ / "run" / "checkpoints"),
            (std::vector<std::int64_t>{7, 12, 20}));
}

// Seconds after the first, as often as it takes: the process ends without waiting for anything.
TEST(InterruptDeathTest, LaterASecondSignalKills) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        for (;;) {
          std::raise(SIGINT);
          ::usleep(10'000);
        }
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace atl::train
