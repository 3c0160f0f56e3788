#include "atoll/island/policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace atl::island {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kParameters = 1e7;

PolicyPlan plan_of(const std::string& policy) {
  return {.policy = policy,
          .base = {.inner_steps = 32, .codec = "f32", .outer_lr = 0.6},
          .min_inner_steps = 4,
          .max_inner_steps = 256,
          .may_change_codec = true,
          .may_change_lr = true,
          .parameters = kParameters};
}

// A run as its ledger tells it: `islands` that all measure the same, over a link.
class PolicyRun {
 public:
  explicit PolicyRun(const PolicyPlan& plan, int islands = 4) : history_(plan), islands_(islands) {}

  double step_seconds = 0.1;
  double bytes_per_second = 1e7;
  double round_trip = 0.05;
  double lr = 1e-3;
  double loss = 4;
  double mean_norm = 0.5;  // of four norms of 1: as if at random
  double noise = 0;        // of an exchange, relative
  Measurements lie;        // of the first island, if it lies
  bool is_lying = false;

  // Makes an outer step; returns why the schedule of the next is another.
  std::string make() {
    LogReduce reduce = {.outer_step = step_, .attempt = 1, .fragment = 0, .contributions = {}};
    for (int i = 0; i < islands_; ++i) {
      LogContribution one = {.participant = {.island = static_cast<IslandId>(i + 1),
                                             .address = {},
                                             .weight = 1.0 / islands_,
                                             .tokens = 100},
                             .consumed = {},
                             .loss = loss,
                             .norm = 1,
                             .measured = {.step_seconds = step_seconds,
                                          .learning_rate = lr,
                                          .exchange_seconds = 1,
                                          .codec_bytes_per_second = 1e9,
                                          .mean_norm = mean_norm}};
      one.measured.links.push_back({2, 1e6, round_trip});
      if (i == 0 && is_lying) {
        one.measured = lie;
        one.loss = lie.mean_norm;
        one.norm = 0;
      }
      reduce.contributions.push_back(one);
    }
    const double wobble = 1 + noise * std::sin(static_cast<double>(step_) * 12.9898);
    const double exchange =
        (2 * round_trip +
         exchange_bytes(schedule().codec, kParameters, islands_) / bytes_per_second) *
        wobble;
    const PolicyDecision decision = history_.decide(reduce, exchange);
    const double round = exchange + static_cast<double>(schedule().inner_steps) * step_seconds;
    history_.committed(reduce, {.outer_step = step_,
                                .attempt = 1,
                                .hash = {1, 1},
                                .exchange_seconds = exchange,
                                .round_seconds = round,
                                .next = decision.next,
                                .why = decision.why});
    ++step_;
    seconds_ += round;
    num_changes_ += decision.why.empty() ? 0 : 1;
    return decision.why;
  }
  void make(int count) {
    for (int i = 0; i < count; ++i) make();
  }
  const RoundSchedule& schedule() const { return history_.schedule(); }
  const PolicyHistory& history() const { return history_; }
  int num_changes() const { return num_changes_; }

 private:
  PolicyHistory history_;
  int islands_;
  std::int64_t step_ = 0;
  double seconds_ = 0;
  int num_changes_ = 0;
};

TEST(Policy, FixedSaysWhatTheSettingsSay) {
  PolicyRun run(plan_of("fixed"));
  run.make(50);
  EXPECT_EQ(run.schedule(), plan_of("fixed").base);
  EXPECT_EQ(run.num_changes(), 0);
}

TEST(Policy, AutoAnswersALinkThatBecomesTenTimesSlowerWithinTwoOuterSteps) {
  PolicyRun run(plan_of("auto"));
  run.bytes_per_second = 5e8;
  run.make(30);
  const RoundSchedule before = run.schedule();
  run.bytes_per_second = 5e7;
  EXPECT_THAT(run.make() + run.make(), HasSubstr("gain predicted"));
  const auto bytes_a_step = [](const RoundSchedule& schedule) {
    return exchange_bytes(schedule.codec, kParameters, 4) /
           static_cast<double>(schedule.inner_steps);
  };
  EXPECT_LT(bytes_a_step(run.schedule()), 0.8 * bytes_a_step(before));
}

TEST(Policy, NoiseOnTheLinkDoesNotMakeAutoRestless) {
  PolicyRun run(plan_of("auto"));
  run.noise = 0.2;
  run.make(30);  // finds its place
  const int found = run.num_changes();
  run.make(1000);
  EXPECT_EQ(run.num_changes(), found);
}

TEST(Policy, AutoHasNoLimitCycle) {
  PolicyRun run(plan_of("auto"));
  run.make(20);
  const int found = run.num_changes();
  run.make(10'000);
  EXPECT_EQ(run.num_changes(), found);
}

TEST(Policy, ChangesAreFiveOuterStepsApartAtLeast) {
  PolicyRun run(plan_of("auto"));
  std::int64_t last = -100;
  for (std::int64_t k = 0; k < 500; ++k) {
    run.bytes_per_second = k / 3 % 2 == 0 ? 1e6 : 1e9;
    if (run.make().empty()) continue;
    EXPECT_GE(k - last, 5) << k;
    last = k;
  }
  EXPECT_GT(last, 0);
}

TEST(Policy, AutoPredictsExchanges) {
  PolicyRun run(plan_of("auto"));
  run.make(20);
  const double bytes = exchange_bytes(run.schedule().codec, kParameters, 4);
  EXPECT_NEAR(run.schedule().predicted_seconds, 0.1 + bytes / run.bytes_per_second,
              0.15 * run.schedule().predicted_seconds);
}

TEST(Policy, AlikePseudoGradientsAllowLongerRounds) {
  PolicyRun unlike(plan_of("auto"));
  PolicyRun alike(plan_of("auto"));
  alike.mean_norm = 0.99;
  unlike.make(60);
  alike.make(60);
  EXPECT_GE(alike.schedule().inner_steps, unlike.schedule().inner_steps);
  EXPECT_NEAR(alike.history().rounds().back().unlikeness, (1 - 0.99 * 0.99) * 4 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(unlike.history().rounds().back().unlikeness, 1);
}

TEST(Policy, QsrLengthensRoundsAsTheLearningRateFalls) {
  PolicyRun run(plan_of("qsr"));
  run.lr = 2e-4;
  run.make(10);  // warm-up: low and rising
  run.lr = 1e-3;
  run.make(10);
  EXPECT_EQ(run.schedule().inner_steps, 32);
  run.lr = 5e-4;
  run.make(6);
  EXPECT_EQ(run.schedule().inner_steps, 4 * 32);
  EXPECT_GT(run.schedule().outer_lr, 0.6);
  run.lr = 1e-5;
  run.make(6);
  EXPECT_EQ(run.schedule().inner_steps, 8 * 32);  // not 10,000 times
}

TEST(Policy, QsrSendsLittleOfWhatConstantRoundsDoOnACosine) {
  PolicyPlan plan = plan_of("qsr");
  PolicyRun run(plan);
  constexpr double kBase = 32;
  constexpr double kSteps = 1'000 * kBase;
  double exchanges = 0;
  for (double step = 0; step < kSteps; ++exchanges) {
    step += static_cast<double>(run.schedule().inner_steps);
    run.lr = 1e-3 * (0.05 + 0.95 * (1 + std::cos(3.14159265358979 * step / kSteps)) / 2);
    run.make();
  }
  EXPECT_LT(exchanges / (kSteps / kBase), 0.45);
  EXPECT_GT(exchanges / (kSteps / kBase), 0.35);
}

TEST(Policy, AdaCommShortensRoundsAsTheLossFalls) {
  PolicyRun run(plan_of("adacomm"));
  run.make(10);
  EXPECT_EQ(run.schedule().inner_steps, 32);
  run.loss = 1;
  run.make(6);
  EXPECT_EQ(run.schedule().inner_steps, 16);
}

TEST(Policy, BudgetKeepsItsBytes) {
  PolicyPlan plan = plan_of("budget");
  plan.round_bytes = exchange_bytes("int8", kParameters, 4);
  PolicyRun run(plan);
  run.make(10);
  EXPECT_EQ(run.schedule().codec, "int8");
  plan.round_bytes = 0;
  plan.day_bytes = exchange_bytes("f32", kParameters, 4) * 86400 / (32 * 0.1 * 8);  // an eighth
  PolicyRun daily(plan);
  daily.make(40);
  double bytes = 0;
  double seconds = 0;
  for (std::size_t k = 20; k < 40; ++k) {
    bytes += daily.history().rounds()[k].bytes;
    seconds += daily.history().rounds()[k].round_seconds;
  }
  EXPECT_LE(bytes / seconds * 86400, 1.01 * plan.day_bytes);
  EXPECT_GT(bytes / seconds * 86400, 0.5 * plan.day_bytes);
}

TEST(Policy, ADayIsNeverMoreThanItsBudgetAndARound) {
  PolicyPlan plan = plan_of("budget");
  plan.may_change_codec = false;
  const double round = exchange_bytes("f32", kParameters, 4);
  plan.day_bytes = 3.5 * round;  // no H within the bounds is as long as that
  PolicyRun run(plan);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run.history().seconds_to_wait(0, 4), 0) << i;
    run.make();
  }
  const double wait = run.history().seconds_to_wait(0, 4);
  EXPECT_GT(wait, 80'000);
  EXPECT_EQ(run.history().seconds_to_wait(wait + 1, 4), 0);
}

TEST(Policy, ALossThatRisesTakesAChangeBack) {
  PolicyRun run(plan_of("auto"));
  run.bytes_per_second = 1e8;
  run.make(20);
  const RoundSchedule before = run.schedule();
  run.bytes_per_second = 1e6;
  std::string why;
  for (int i = 0; i < 10 && why.empty(); ++i) why = run.make();
  EXPECT_FALSE(is_same_setting(run.schedule(), before));
  run.loss = 4.2;
  run.make(2);
  EXPECT_THAT(run.make(), HasSubstr("back from"));
  EXPECT_TRUE(is_same_setting(run.schedule(), before));
  for (int i = 0; i < 15; ++i) EXPECT_THAT(run.make(), IsEmpty());  // and not at once again
}

TEST(Policy, ALyingIslandMovesNothingOutOfBounds) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double lie : {0.0, -1.0, 1e-300, 1e300, kInfinity, -kInfinity, kNaN}) {
    for (const char* policy : {"qsr", "adacomm", "auto"}) {
      PolicyRun honest(plan_of(policy));
      PolicyRun run(plan_of(policy));
      run.is_lying = true;
      run.lie = {.step_seconds = lie,
                 .learning_rate = lie,
                 .exchange_seconds = lie,
                 .codec_bytes_per_second = lie,
                 .mean_norm = lie,
                 .links = {{2, lie, lie}}};
      for (int k = 0; k < 60; ++k) {
        run.make();
        honest.make();
        ASSERT_GE(run.schedule().inner_steps, 4) << policy << lie;
        ASSERT_LE(run.schedule().inner_steps, 256) << policy << lie;
        ASSERT_TRUE(std::isfinite(run.schedule().predicted_seconds)) << policy << lie;
      }
      // One of four: the medians are those of the honest ones.
      EXPECT_EQ(run.schedule().inner_steps, honest.schedule().inner_steps) << policy << lie;
    }
  }
}

TEST(Policy, PlansThatMakeNoSenseAreRefusedByName) {
  EXPECT_EQ(policy_fault(plan_of("auto"), 4), "");
  EXPECT_THAT(policy_fault(plan_of("often"), 4), HasSubstr("no policy 'often'"));
  PolicyPlan plan = plan_of("auto");
  plan.min_inner_steps = 64;
  EXPECT_THAT(policy_fault(plan, 4), HasSubstr("outer.inner_steps is 32"));
  plan.max_inner_steps = 8;
  EXPECT_THAT(policy_fault(plan, 4), HasSubstr("the least must not be above the most"));
  plan = plan_of("budget");
  EXPECT_THAT(policy_fault(plan, 4), HasSubstr("outer.round_mb or outer.day_mb"));
  plan.round_bytes = 1e6;
  EXPECT_THAT(policy_fault(plan, 4), HasSubstr("no setting keeps the budget"));
  plan = plan_of("auto");
  plan.base.codec = "zip";
  EXPECT_THAT(policy_fault(plan, 4), HasSubstr("zip"));
}

TEST(Policy, AVoidOuterStepIsForgotten) {
  PolicyRun run(plan_of("auto"));
  run.make(20);
  PolicyHistory history = run.history();
  run.bytes_per_second = 1e3;
  run.make(8);
  PolicyHistory longer = run.history();
  for (int i = 0; i < 8; ++i) longer.forget_newest();
  EXPECT_EQ(longer.schedule(), history.schedule());
  EXPECT_EQ(longer.rounds().size(), history.rounds().size());
}

}  // namespace
}  // namespace atl::island
