#include "atoll/watch/alert_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "atoll/base/rng.h"

namespace atl::watch {
namespace {

using metrics::Pause;
using metrics::StepFacts;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A run of made-up steps on a clock of its own.
class Rules : public ::testing::Test {
 protected:
  // The alerts of one step that takes `seconds`.
  std::vector<Alert> step(double seconds = 0.5, double loss = 3, std::vector<double> ranks = {}) {
    now_s_ += seconds;
    ++step_;
    return keep(rules_.stepped({.step = step_,
                                .time_s = now_s_,
                                .seconds = seconds,
                                .loss = loss + 0.02 * noise(),
                                .grad_norm = 1,
                                .tokens = 512,
                                .rank_seconds = std::move(ranks)}));
  }
  void steps(int count, double seconds = 0.5, double loss = 3,
             const std::vector<double>& ranks = {}) {
    for (int i = 0; i < count; ++i) step(seconds, loss, ranks);
  }
  // So many seconds in which no step ends.
  void pass(double seconds, std::optional<std::uint64_t> free_bytes = std::nullopt) {
    for (const double end = now_s_ + seconds; now_s_ < end; now_s_ += 0.25) {
      keep(rules_.tick(now_s_, free_bytes));
    }
  }
  // From -1 to 1.
  double noise() {
    return 2 * static_cast<double>(stream_.word(static_cast<std::uint64_t>(step_)) >> 8) /
               static_cast<double>(1 << 24) -
           1;
  }
  std::vector<AlertKind> kinds() const {
    std::vector<AlertKind> kinds;
    for (const Alert& alert : told_) kinds.push_back(alert.kind);
    return kinds;
  }
  std::vector<Alert> keep(std::vector<Alert> alerts) {
    told_.insert(told_.end(), alerts.begin(), alerts.end());
    return alerts;
  }
  // How many steps of this kind it takes until there is an alert; 0: more than `most`.
  int steps_until(AlertKind kind, int most, const std::function<void()>& one) {
    for (int i = 1; i <= most; ++i) {
      one();
      if (!told_.empty() && told_.back().kind == kind) return i;
    }
    return 0;
  }

  static AlertContext context() {
    return {.run_dir = "runs/a b",
            .resume = "atoll train r.toml",
            .lr = 0.01,
            .pid = 77,
            .checkpoint_bytes = 1 << 20};
  }

  const RngStream stream_{1, RngPurpose::kSynthetic};
  AlertRules rules_{context(), {}};
  std::vector<Alert> told_;
  double now_s_ = 100;
  std::int64_t step_ = 0;
};

TEST_F(Rules, SayNothingOfAHealthyRun) {
  for (int i = 0; i < 2000; ++i) {
    step(0.5 + 0.1 * noise(), 8 * std::exp(-i / 300.0) + 2, {0.1, 0.11 + 0.01 * noise()});
    if (i % 100 == 0) {
      rules_.paused(Pause::kEvaluation, now_s_);
      pass(20, std::uint64_t{10} << 30);
      rules_.resumed(now_s_);
      rules_.checkpoint_begun(step_, now_s_);
      pass(3);
      rules_.checkpoint_saved(now_s_, 1 << 20);
    }
  }
  EXPECT_THAT(kinds(), IsEmpty());
}

TEST_F(Rules, TellOfAStepThatIsNotFiniteAtOnceAndOnce) {
  steps(3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Alert> alerts = step(0.5, nan);
  ASSERT_EQ(alerts.size(), 1u);
  EXPECT_EQ(alerts[0].kind, AlertKind::kNonfinite);
  EXPECT_EQ(alerts[0].severity, Severity::kError);
  EXPECT_EQ(alerts[0].step, 4);
  EXPECT_EQ(alerts[0].command, "atoll train r.toml --optim.lr=0.005");
  steps(3, 0.5, nan);
  EXPECT_EQ(told_.size(), 1u) << "steps that follow it say nothing new";
  step();
  EXPECT_EQ(step(0.5, std::numeric_limits<double>::infinity()).size(), 1u);
}

TEST_F(Rules, TellOfASpikeInItsStep) {
  steps(40);
  const std::vector<Alert> alerts = step(0.5, 4);
  ASSERT_EQ(alerts.size(), 1u);
  EXPECT_EQ(alerts[0].kind, AlertKind::kSpike);
  EXPECT_THAT(alerts[0].message, HasSubstr("and was 3.0"));
  EXPECT_EQ(alerts[0].command, "atoll runs plot 'runs/a b'");
  steps(40);
  EXPECT_EQ(told_.size(), 1u);
  step(0.5, 4);
  EXPECT_EQ(told_.size(), 2u) << "a second spike is told of again";
}

TEST_F(Rules, TellOfALossThatExplodesFromTheFirstSteps) {
  steps(5, 0.5, 6);
  step(0.5, 10);
  EXPECT_THAT(kinds(), IsEmpty());
  EXPECT_EQ(step(0.5, 22).size(), 1u);
  EXPECT_EQ(told_[0].kind, AlertKind::kSpike);
  steps(20, 0.5, 30);
  EXPECT_EQ(told_.size(), 1u) << "once";
}

TEST_F(Rules, TellOfNoSpikeInANoisyLoss) {
  for (int i = 0; i < 500; ++i) step(0.5, 3 + 0.4 * noise() * noise() * noise());
  EXPECT_THAT(kinds(), IsEmpty());
}

TEST_F(Rules, TellOfASlowDivergenceOnce) {
  steps(200);
  for (int i = 0; i < 400; ++i) step(0.5, 3 + 0.002 * i);
  EXPECT_THAT(kinds(), ::testing::ElementsAre(AlertKind::kDivergence));
  EXPECT_THAT(told_[0].message, HasSubstr("it rises"));
  EXPECT_LE(told_[0].step, 200 + 115) << "5% of 3 is reached at step 275 by the loss, and by the "
                                         "mean of 50 steps 25 steps later";
}

TEST_F(Rules, TellOfSlowStepsWithinTwoOfThemOrFiveSeconds) {
  steps(60, 3);
  EXPECT_EQ(steps_until(AlertKind::kThroughput, 5, [this] { step(7); }), 2) << "long steps";
  EXPECT_THAT(told_.back().message, HasSubstr("throughput is 43% of what it was"));
  EXPECT_EQ(told_.back().command, "atoll trace 'runs/a b' --steps 5");
  steps(100, 3);
  EXPECT_EQ(told_.size(), 1u);

  rules_ = AlertRules(context(), {});
  steps(400, 0.05);
  const double before = now_s_;
  EXPECT_NE(steps_until(AlertKind::kThroughput, 100, [this] { step(0.11); }), 0) << "short ones";
  EXPECT_LE(now_s_ - before, 5);
}

TEST_F(Rules, TellOfNoSlownessThatIsOneStep) {
  steps(60, 3);
  for (int i = 0; i < 10; ++i) {
    step(8);
    steps(5, 3);
  }
  EXPECT_THAT(kinds(), IsEmpty());
}

TEST_F(Rules, TellOfAStragglerWithItsRank) {
  steps(20, 0.5, 3, {0.1, 0.1, 0.11, 0.1});
  const double before = now_s_;
  EXPECT_NE(steps_until(AlertKind::kStraggler, 12,
                        [this] {
                          step(0.7, 3, {0.1, 0.1, 0.25, 0.1});
                        }),
            0);
  EXPECT_LE(now_s_ - before, 5);
  EXPECT_THAT(told_.back().message, AllOf(HasSubstr("rank 2"), HasSubstr("2.5 times")));
  steps(40, 0.7, 3, {0.1, 0.1, 0.25, 0.1});
  EXPECT_EQ(told_.size(), 1u) << "once";
  steps(20, 0.5, 3, {0.1, 0.1, 0.11, 0.1});
  steps(20, 0.7, 3, {0.25, 0.1, 0.1, 0.1});
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_THAT(told_.back().message, HasSubstr("rank 0"));
}

TEST_F(Rules, TellOfNoStragglerWhereTurnsAreSlow) {
  for (int i = 0; i < 200; ++i) {
    std::vector<double> ranks(4, 0.1);
    ranks[static_cast<std::size_t>(i % 4)] = 0.3;
    step(0.5, 3, ranks);
  }
  EXPECT_THAT(kinds(), IsEmpty());
}

TEST_F(Rules, MeasureUnequalRanksByTheirOwnPast) {
  AlertContext unequal = context();
  unequal.ranks_are_equal = false;
  rules_ = AlertRules(unequal, {});
  steps(60, 0.5, 3, {0.1, 0.3, 0.1});
  EXPECT_THAT(kinds(), IsEmpty()) << "a stage that has more layers";
  steps(12, 0.5, 3, {0.1, 0.3, 0.2});
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].message, HasSubstr("rank 2"));
}

TEST_F(Rules, TellOfAStallWithinFiveSecondsOrTwoSteps) {
  steps(10, 0.5);
  pass(3.9);
  EXPECT_THAT(kinds(), IsEmpty());
  pass(0.75);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].kind, AlertKind::kStall);
  EXPECT_THAT(told_[0].command, HasSubstr("-p 77"));
  pass(100);
  EXPECT_EQ(told_.size(), 1u) << "once";
  steps(10, 30);
  pass(59);
  EXPECT_EQ(told_.size(), 1u);
  pass(2);
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(Rules, AllowAPauseItsTime) {
  steps(10, 0.5);
  rules_.paused(Pause::kEvaluation, now_s_);
  pass(59);
  EXPECT_THAT(kinds(), IsEmpty());
  pass(2);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_THAT(told_[0].message, HasSubstr("an evaluation does not end"));
  rules_.resumed(now_s_);
  steps(10, 0.5);
  rules_.paused(Pause::kEvaluation, now_s_);
  pass(180);
  EXPECT_EQ(told_.size(), 1u) << "the one before took a minute";
}

TEST_F(Rules, TellOfACheckpointThatIsLate) {
  steps(10);
  rules_.checkpoint_begun(10, now_s_);
  pass(2);
  rules_.checkpoint_saved(now_s_, 1 << 20);
  steps(10);
  rules_.checkpoint_begun(20, now_s_);
  pass(6);
  EXPECT_THAT(kinds(), IsEmpty());
  pass(1);
  ASSERT_EQ(told_.size(), 1u) << "and no stall";
  EXPECT_EQ(told_[0].kind, AlertKind::kCheckpointLate);
  EXPECT_THAT(told_[0].message, AllOf(HasSubstr("step 20"), HasSubstr("took 2.")));
}

TEST_F(Rules, TellOfAStallWhileACheckpointIsWrittenBesideSteps) {
  steps(10);
  rules_.checkpoint_begun(10, now_s_);
  steps(2);
  pass(5);
  EXPECT_THAT(kinds(), Contains(AlertKind::kStall));
}

TEST_F(Rules, TellOfADiskThatHasNoRoomForTwoCheckpoints) {
  rules_.checkpoint_saved(now_s_, std::uint64_t{1} << 30);
  pass(1, std::uint64_t{3} << 30);
  EXPECT_THAT(kinds(), IsEmpty());
  pass(2, std::uint64_t{2} << 30);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].kind, AlertKind::kDiskLow);
  EXPECT_EQ(told_[0].command, "du -sh 'runs/a b'/*");
  EXPECT_THAT(told_[0].message, AllOf(HasSubstr("2.0 GiB left"),
                                      HasSubstr("two checkpoints (2.0 GiB) and 64.0 MiB")));
}

TEST_F(Rules, TellOfRanksThatAreLost) {
  steps(10);
  keep(rules_.ranks_lost(10, 4, 3, "rank 2 was killed", now_s_));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].message, "3 of 4 ranks are left: rank 2 was killed");
}

TEST_F(Rules, AreSilentOfKindsThatAreOff) {
  rules_ = AlertRules(context(), {AlertKind::kSpike, AlertKind::kStall});
  steps(40);
  step(0.5, 9);
  pass(60);
  EXPECT_THAT(kinds(), IsEmpty());
}

}  // namespace
}  // namespace atl::watch
