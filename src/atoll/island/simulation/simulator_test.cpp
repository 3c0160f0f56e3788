#include "atoll/island/simulation/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/base/rng.h"
#include "atoll/island/simulation/simulation.h"

namespace atl::island {
namespace {

using Kind = SimulatedFault::Kind;
using ::testing::HasSubstr;

std::string words(const SimulationReport& report) {
  std::string text = fmt::format("replay with seed {}", report.seed);
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

// Five outer steps of a second each.
SimulationOptions calm(int num_islands) {
  SimulationOptions options;
  options.num_islands = num_islands;
  options.plan = {.num_fragments = 2,
                  .inner_steps = 20,
                  .total_batches = 100 * num_islands,
                  .min_islands = num_islands,
                  .grace_seconds = 1};
  options.parameters = 1e5;
  options.jitter = 0.02;  // below what makes islands count as unlike
  options.max_seconds = 300;
  return options;
}

SimulationReport run(SimulationOptions options, std::vector<SimulatedFault> faults,
                     std::uint64_t seed = 1) {
  options.faults = std::move(faults);
  const SimulationReport report = simulate(options, seed);
  EXPECT_TRUE(report.violations.empty()) << words(report);
  return report;
}

std::int64_t number(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

// ATOLL_SCHEDULES=1000000 runs that many, ATOLL_FIRST_SCHEDULE=SEED begins there, ATOLL_TRACE=1
// prints what happens: with one schedule, that is its replay.
TEST(Simulator, RandomSchedulesKeepEveryPromise) {
  const std::int64_t count = number("ATOLL_SCHEDULES", 2000);
  const std::int64_t first = number("ATOLL_FIRST_SCHEDULE", 0);
  const bool traces = number("ATOLL_TRACE", 0) != 0;
  int num_failed = 0;
  for (std::int64_t i = 0; i < count && num_failed < 5; ++i) {
    const auto seed = static_cast<std::uint64_t>(first + i);
    SimulationOptions options = random_simulation(seed);
    if (traces) options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    const SimulationReport report = simulate(options, seed);
    if (report.violations.empty()) continue;
    ++num_failed;
    ADD_FAILURE() << words(report);
  }
}

// Of schedules that failed once.
void expect_promises_kept(const std::vector<std::uint64_t>& seeds) {
  for (const std::uint64_t seed : seeds) {
    SimulationOptions options = random_simulation(seed);
    if (number("ATOLL_TRACE", 0) != 0) {
      options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    }
    const SimulationReport report = simulate(options, seed);
    EXPECT_TRUE(report.violations.empty()) << words(report);
  }
}

// An island fetched state that it was not asked for any more, and handed in as the round before had
// it.
TEST(Simulator, WhoFetchesLateHasTheScheduleOfWhatItFetched) {
  constexpr std::uint64_t kSeed = 114204;
  const SimulationReport report = simulate(random_simulation(kSeed), kSeed);
  EXPECT_TRUE(report.violations.empty()) << words(report);
}

// A coordinator died when it had committed and told nobody; the next one must not void what islands
// have.
TEST(Simulator, WhatIslandsHaveIsNotVoidAfterACommitThatNobodyHeardOf) {
  for (const std::uint64_t seed : {331193, 430453, 438129, 446145}) {
    SimulationOptions options = random_fixed_simulation(seed);
    if (number("ATOLL_TRACE", 0) != 0) {
      options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    }
    const SimulationReport report = simulate(options, seed);
    EXPECT_TRUE(report.violations.empty()) << words(report);
  }
}

// One came back with the result of the newest outer step beside its state, when the time that the
// others had was nearly over.
TEST(Simulator, NothingIsVoidWhoseResultAnIslandCameWith) {
  expect_promises_kept({65941});
}

// An island joined, was stopped, and had handed in nothing when the only other one left for good.
TEST(Simulator, TheStateThatAnIslandJoinedWithIsTheNewestWhenAllOthersHaveLeft) {
  expect_promises_kept({156510, 290040});
}

// Gossiping islands had what they began with when their coordinator was killed; what else had been
// committed was lost.
TEST(Simulator, GossipGoesOnWithTheStateOfTheBeginningAfterARestart) {
  expect_promises_kept({64328});
}

// The newest outer step was void, and one came back that had the result of the one before it.
TEST(Simulator, AfterAVoidItIsKnownWhoIsInTheNewestOuterStepThatStands) {
  expect_promises_kept({383919});
}

// The only one left fetched the newest state from one that had left, while that became void.
TEST(Simulator, NothingIsVoidBeforeTheIslandThatIsLeftHasSaidThatItHasItsState) {
  expect_promises_kept({807011});
}

// All are lost, what they committed is void, and the one that has the state of outer step 0, whose
// hashes are in no log, has said nothing of it.
TEST(Simulator, ARunThatFellBackToItsBeginningGoesOn) {
  constexpr std::uint64_t kSeed = 274143;
  const SimulationReport report = simulate(random_fixed_simulation(kSeed), kSeed);
  EXPECT_TRUE(report.violations.empty()) << words(report);
}

TEST(Simulator, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::string lines[2];
    for (std::string& text : lines) {
      SimulationOptions options = random_simulation(seed);
      options.trace = [&](const std::string& line) { text += line + "\n"; };
      simulate(options, seed);
    }
    EXPECT_EQ(lines[0], lines[1]) << "seed " << seed;
    EXPECT_FALSE(lines[0].empty());
  }
}

TEST(Simulator, WithoutFaultsNothingIsLostOrRepeated) {
  const SimulationReport report = run(calm(4), {});
  EXPECT_EQ(report.commits, 5);
  EXPECT_EQ(report.aborts, 0);
  EXPECT_EQ(report.batches, 400);
  // An outer step is a second of work, five messages and an exchange there and back, at up to 30 ms
  // each way, and the trainer hears twice between two steps of 50 ms.
  EXPECT_GT(report.goodput, 1 / (1 + 7 * 0.03 + 2 * 0.05));
}

// Row 1: the next commit is there within five seconds of the fault, and the victim loses its round.
TEST(Simulator, AKilledIslandHoldsTheOthersUpForSecondsOnly) {
  for (int tenth = 1; tenth < 60; ++tenth) {
    for (const Kind kind : {Kind::kCrash, Kind::kSilentCrash}) {
      const SimulationReport report =
          run(calm(3), {{.kind = kind, .when = 0.1 * tenth, .lasts = 60, .island = 1}},
              static_cast<std::uint64_t>(tenth));
      EXPECT_EQ(report.batches, 300) << words(report);
      // A round of a second, and its exchange, belong to the pause.
      EXPECT_LE(report.longest_pause, 5 + 1.5) << words(report);
    }
  }
}

// Row 2.
TEST(Simulator, AStoppedIslandIsSuspectedWithinThreeSecondsAndComesBack) {
  for (const Seconds lasts : {1.0, 2.0, 5.0, 20.0, 60.0}) {
    SimulationOptions options = calm(3);
    options.plan.total_batches = 3000;
    const SimulationReport report =
        run(options, {{.kind = Kind::kStop, .when = 2.5, .lasts = lasts, .island = 0}});
    EXPECT_LE(report.longest_pause, 3 + 1.5) << lasts;
    EXPECT_EQ(report.evictions, 0);
  }
}

// Row 3.
TEST(Simulator, PartitionsOfAllKindsEndInOneHistory) {
  for (const Kind kind : {Kind::kCut, Kind::kCutToCoordinator, Kind::kCutFromCoordinator}) {
    for (const Seconds lasts : {0.5, 4.0, 12.0, 40.0}) {
      const SimulationReport report =
          run(calm(4), {{.kind = kind, .when = 1.3, .lasts = lasts, .island = 2},
                        {.kind = kind, .when = 2.1, .lasts = lasts, .island = 3}});
      EXPECT_EQ(report.batches, 400);
      EXPECT_EQ(report.voids, 0);
    }
  }
}

TEST(Simulator, TwoIslandsThatCannotReachEachOtherGoThroughTheCoordinator) {
  SimulationOptions options = calm(3);
  std::string text;
  options.trace = [&](const std::string& line) { text += line + "\n"; };
  const SimulationReport report =
      run(options, {{.kind = Kind::kCutPair, .when = 0.1, .lasts = 1e3, .island = 0, .other = 1}});
  EXPECT_EQ(report.commits, 5) << "all three take part in every outer step";
  EXPECT_EQ(report.aborts, 1) << "and only the first one is tried without it";
  EXPECT_THAT(text, HasSubstr("star"));
}

// Row 4: no commit is lost or doubled wherever it dies, and islands go on computing.
TEST(Simulator, AKilledCoordinatorLosesNothing) {
  for (int i = 0; i < 200; ++i) {
    const Kind kind = i % 2 == 0 ? Kind::kKillCoordinatorMidway : Kind::kKillCoordinator;
    const SimulationReport report = run(calm(3), {{.kind = kind, .when = 0.031 * i, .lasts = 1}},
                                        static_cast<std::uint64_t>(i));
    EXPECT_EQ(report.batches, 300) << words(report);
    EXPECT_EQ(report.voids, 0) << words(report);
    EXPECT_LE(report.longest_pause, 5 + 1.5) << words(report);
  }
}

// Row 5.
TEST(Simulator, ASlowIslandDoesNotHoldUpTheOthers) {
  SimulationOptions options = calm(4);
  options.plan.total_batches = 8000;
  const double even = run(options, {}).seconds;
  options.speeds = {1, 1, 1, 0.25};
  const SimulationReport report = run(options, {});
  const double uneven = report.seconds;
  // Its speed is not known in the first round, where it takes four seconds: one and the grace.
  EXPECT_LT(report.longest_pause, 1 + 1 + 0.5);
  // The four have 3.25 times the speed of one.
  EXPECT_LT(uneven, even * 4 / 3.25 / 0.9);
}

// Row 11.
TEST(Simulator, AWrongResultIsFoundBeforeItIsCommitted) {
  for (int i = 0; i < 20; ++i) {
    const SimulationReport report =
        run(calm(3), {{.kind = Kind::kFlipResult, .when = 0.3 * i, .island = 1}},
            static_cast<std::uint64_t>(i));
    EXPECT_LE(report.aborts, 1);
    EXPECT_EQ(report.evictions, 0);
  }
}

TEST(Simulator, AnIslandThatIsAlwaysWrongIsTurnedOut) {
  const SimulationReport report =
      run(calm(4), {{.kind = Kind::kAlwaysFlips, .when = 0.1, .island = 1}});
  EXPECT_EQ(report.evictions, 1);
  EXPECT_EQ(report.batches, 400) << "the others train on its batches";
}

TEST(Simulator, TwoThatDisagreeHaltTheRun) {
  SimulationOptions options = calm(2);
  options.faults = {{.kind = Kind::kAlwaysFlips, .when = 0.1, .island = 1}};
  const SimulationReport report = simulate(options, 1);
  EXPECT_THAT(report.halted, HasSubstr("no majority"));
  EXPECT_EQ(report.commits, 0);
  EXPECT_TRUE(report.violations.empty()) << words(report);
}

TEST(Simulator, WhatIsNotFiniteOrFarTooLargeIsNotAdmitted) {
  for (const Kind kind : {Kind::kNotFinite, Kind::kHugeNorm}) {
    SimulationOptions options = calm(4);
    std::string text;
    options.trace = [&](const std::string& line) { text += line + "\n"; };
    const SimulationReport report = run(options, {{.kind = kind, .when = 1.4, .island = 2}});
    EXPECT_EQ(report.batches, 400) << "its batches are trained on again";
    EXPECT_EQ(report.evictions, 0);
    EXPECT_THAT(text, HasSubstr("without work"));
  }
}

// Row 18.
TEST(Simulator, IslandsMayComeAndGo) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Seconds when = 0.1 * static_cast<double>(seed);
    const SimulationReport report = run(calm(2),
                                        {{.kind = Kind::kJoin, .when = when},
                                         {.kind = Kind::kJoin, .when = when + 0.7},
                                         {.kind = Kind::kLeave, .when = when + 1.1, .island = 0},
                                         {.kind = Kind::kJoin, .when = when + 1.9}},
                                        seed);
    EXPECT_EQ(report.batches, 200);
  }
}

// What an island says waits behind all that it exchanges, and then comes at once.
TEST(Simulator, LinksWithLongQueuesAreLearned) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimulationOptions options = calm(2 + static_cast<int>(seed % 3));
    options.link = {.bits_per_second = 4e5, .queue = 5};  // some four seconds an outer step
    options.overlap = seed % 2 == 0 ? options.plan.inner_steps : 0;
    const SimulationReport report = run(options, {}, seed);
    EXPECT_TRUE(report.is_finished);
    EXPECT_LE(report.aborts, 12) << "seed " << seed;
    EXPECT_GE(report.commits, 5);
  }
}

// Its fetch takes longer than two outer steps, each of which changes the state.
TEST(Simulator, WhoCannotFetchTheStateInARoundStillComesToTakePart) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimulationOptions options = calm(2);
    options.plan.total_batches = 4000;
    options.link = {.bits_per_second = 9e5, .queue = 2};
    options.overlap = options.plan.inner_steps;
    options.max_seconds = 2000;
    bool took_part = false;
    options.trace = [&](const std::string& line) {
      const bool is_its = line.find("island 3: ") != std::string::npos;
      took_part |= is_its && line.find(" Ready ") != std::string::npos;
    };
    const SimulationReport report = run(options, {{.kind = Kind::kJoin, .when = 20}}, seed);
    EXPECT_TRUE(report.is_finished);
    EXPECT_EQ(report.batches, 4000);
    EXPECT_TRUE(took_part) << "seed " << seed;
  }
}

TEST(Simulator, WhenAllAreLostTheNewestStateLeftWins) {
  SimulationOptions options = calm(3);
  options.checkpoint_every = 2;
  std::vector<SimulatedFault> faults;
  for (int i = 0; i < 3; ++i) {
    faults.push_back({.kind = Kind::kCrash, .when = 3.9, .lasts = 1, .island = i});
  }
  const SimulationReport report = run(options, faults);
  EXPECT_EQ(report.voids, 1) << "outer step 3 was in no checkpoint";
  EXPECT_EQ(report.batches, 300) << "and its batches are trained on again";
}

// The coordinator is killed shortly before the run ends, while one island is fetching the state, is
// being started again, or is out of touch: it must not come when everybody else has gone.
TEST(Simulator, WhoIsAwayWhenTheRunEndsGetsTheFinalStateAlsoAfterARestart) {
  const Kind kinds[] = {Kind::kJoin, Kind::kRestart, Kind::kCrash, Kind::kStop, Kind::kCut};
  const std::int64_t count = number("ATOLL_SCHEDULES", 2000) / 5;
  const std::int64_t first = number("ATOLL_FIRST_SCHEDULE", 0);
  const bool traces = number("ATOLL_TRACE", 0) != 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    RngStream dice(seed, RngPurpose::kSynthetic, 2);
    SimulationOptions options = calm(3);
    options.plan.total_batches = 200;
    options.plan.min_islands = 2;
    options.link.bits_per_second = 4e6;  // 1.6 s for the state, 0.8 for an exchange
    options.overlap = i % 2 == 0 ? options.plan.inner_steps : 0;
    options.coordinator_ends = true;
    const Seconds end = simulate(options, seed).seconds;
    if (traces) options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    const Kind kind = kinds[seed % std::size(kinds)];
    const Seconds away = kind == Kind::kStop || kind == Kind::kCut ? 10 : 40;
    // Others end the run while it is away, or a little later. It has joined before.
    const Seconds from = end - 0.3 - 4 * dice.uniform(0);
    std::vector<SimulatedFault> faults = {
        {.kind = kind, .when = from, .lasts = away * dice.uniform(1), .island = 2},
        {.kind = Kind::kKillCoordinator,
         .when = from + 0.2 + 2 * dice.uniform(2),
         .lasts = 2 * dice.uniform(3)}};
    // One that has just come is killed, as a rule while it is fetching the state.
    if (kind == Kind::kJoin && i % 2 == 0) {
      faults.push_back({.kind = Kind::kCrash,
                        .when = from + 0.2 + dice.uniform(4),
                        .lasts = away * dice.uniform(1),
                        .island = 3});
    }
    run(options, faults, seed);
    if (::testing::Test::HasFailure()) break;
  }
}

// Islands are killed, or are out of touch, between the end of the run and the moment that they have
// saved the final model, or a little later; half of the times the coordinator is killed as well.
TEST(Simulator, WhoIsKilledBeforeItHasSavedTheFinalModelGetsItFromTheOthers) {
  const Kind kinds[] = {Kind::kCrash, Kind::kSilentCrash, Kind::kStop, Kind::kCut};
  const std::int64_t count = number("ATOLL_SCHEDULES", 2000) / 5;
  const std::int64_t first = number("ATOLL_FIRST_SCHEDULE", 0);
  const bool traces = number("ATOLL_TRACE", 0) != 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    RngStream dice(seed, RngPurpose::kSynthetic, 3);
    SimulationOptions options = calm(3);
    options.plan.total_batches = 200;
    options.plan.min_islands = 2;
    options.link.bits_per_second = 4e6;  // 1.6 s for the state, 0.8 for an exchange
    options.plan.is_async = i % 3 == 1;
    options.plan.is_gossip = i % 3 == 2;
    if (i % 3 != 0) options.plan.num_fragments = 1;
    options.overlap = options.plan.is_async ? options.plan.inner_steps : 0;
    options.coordinator_ends = true;
    const Seconds end = simulate(options, seed).seconds;
    if (traces) options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    std::vector<SimulatedFault> faults;
    for (std::uint64_t k = 0; k < 1 + seed % 2; ++k) {
      const auto kind = kinds[static_cast<std::size_t>(4 * dice.uniform(4 * k))];
      faults.push_back({.kind = kind,
                        .when = end + options.save_seconds * dice.uniform(4 * k + 1),
                        .lasts = (kind == Kind::kStop ? 10 : 40) * dice.uniform(4 * k + 2),
                        .island = static_cast<int>(3 * dice.uniform(4 * k + 3))});
    }
    if (dice.uniform(8) < 0.5) {
      faults.push_back({.kind = Kind::kKillCoordinator,
                        .when = end + options.save_seconds * dice.uniform(9),
                        .lasts = 10 * dice.uniform(10)});
    }
    run(options, faults, seed);
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(Simulator, AStoppedCoordinatorIsWaitedFor) {
  const SimulationReport report =
      run(calm(3), {{.kind = Kind::kStopCoordinator, .when = 1.2, .lasts = 20}});
  EXPECT_EQ(report.batches, 300);
  EXPECT_EQ(report.evictions, 0);
}

}  // namespace
}  // namespace atl::island
