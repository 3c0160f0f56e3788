#include "atoll/tune/trial/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/error.h"
#include "atoll/tune/schedule/registry.h"
#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/search/draws.h"
#include "atoll/tune/trial/testing.h"

namespace atl::tune {
namespace {

using testing::branin_regret;
using testing::problem_on;
using testing::unit_space;

std::vector<std::string> texts(const std::vector<Event>& events) {
  std::vector<std::string> all;
  for (const Event& event : events) {
    all.push_back(fmt::format("{} {} {}", name_of(event.kind), event.trial, to_json(event)));
  }
  return all;
}

// What a trial shows: better with more steps, the same for the same point.
double shown(const Trial& trial, std::int64_t step) {
  return branin_regret(trial.units) + 40.0 / static_cast<double>(step);
}

// Runs a study with one worker whose tuner is killed after every event that `survives` says, and
// returns all events but those of starts.
std::vector<std::string> events_with_kills(const Problem& problem, std::uint64_t seed, bool kills) {
  std::vector<Event> stored;
  Draws draws(seed, DrawFor::kRandom, 77);
  for (;;) {
    Tuner tuner(problem, stored, [&](std::span<const Event> events) {
      stored.insert(stored.end(), events.begin(), events.end());
    });
    bool over = true;
    while (const std::optional<Job> job = tuner.next()) {
      over = false;
      if (kills && draws.uniform() < 0.3) break;  // while it trains
      const Trial& trial = tuner.history().trial(job->trial);
      tuner.result(job->trial, {.step = job->step, .values = {shown(trial, job->step)}});
      over = true;
      if (kills && draws.uniform() < 0.3) {
        over = false;
        break;
      }
    }
    if (over) break;
  }
  std::erase_if(stored, [](const Event& event) { return event.kind == Event::Kind::kStart; });
  return texts(stored);
}

TEST(Tuner, AKilledStudyIsThatOfOneThatWasNotToTheLastBit) {
  const Space space = unit_space(2);
  for (const std::string& searcher : searcher_names()) {
    for (const std::string& scheduler : scheduler_names()) {
      if (searcher == "grid") continue;  // the space is continuous
      Problem problem = problem_on(space, searcher, 5, 18);
      problem.scheduler = scheduler;
      problem.startup = 5;
      problem.rules.max_steps = 27;
      problem.rules.min_steps = 3;
      problem.rules.every = 9;
      problem.rules.population = 4;
      problem.rules.interval = 9;
      const std::vector<std::string> whole = events_with_kills(problem, 0, false);
      EXPECT_GT(whole.size(), 18u) << searcher << " " << scheduler;
      EXPECT_EQ(events_with_kills(problem, 3, true), whole) << searcher << " " << scheduler;
    }
  }
}

TEST(Tuner, AKilledPopulationWithABanditIsThatOfOneThatWasNot) {
  const Space space = unit_space(2);
  Problem problem = problem_on(space, "quasi-random", 5, 0);
  problem.scheduler = "pbt";
  problem.explore = "pb2";
  problem.rules = {.seed = 5, .max_steps = 60, .population = 4, .interval = 6};
  const std::vector<std::string> whole = events_with_kills(problem, 0, false);
  EXPECT_EQ(events_with_kills(problem, 3, true), whole);
  problem.explore = "perturb";
  EXPECT_NE(events_with_kills(problem, 0, false), whole);
}

TEST(Tuner, NothingIsDecidedThatIsNotStored) {
  const Space space = unit_space(2);
  bool is_full = true;
  Tuner tuner(problem_on(space, "random", 1, 3), {}, [&](std::span<const Event>) {
    if (is_full) throw make_error(ErrorKind::kIo, "the disk is full");
  });
  EXPECT_THROW(tuner.next(), Error);
  EXPECT_TRUE(tuner.history().trials().empty());
  is_full = false;
  ASSERT_TRUE(tuner.next().has_value());
  is_full = true;
  EXPECT_THROW(tuner.result(0, {.step = 1, .values = {2}}), Error);
  EXPECT_TRUE(tuner.history().trial(0).measured.empty());
}

TEST(Tuner, AFiniteSpaceEndsAndHasNoTrialTwice) {
  std::vector<Dimension> dimensions = {
      {.key = "a", .kind = Dimension::Kind::kInteger, .low = 1, .high = 3},
      {.key = "b", .kind = Dimension::Kind::kOrdered, .choices = {0.1, 0.2}}};
  const Space space(dimensions);
  for (const std::string& searcher : searcher_names()) {
    Problem problem = problem_on(space, searcher, 2, 50);
    problem.startup = 3;
    const SimulatedOutcome outcome = simulate_study(
        problem,
        {.train = [](const Trial& trial,
                     std::int64_t) { return std::vector<double>{trial.units[0] + trial.units[1]}; },
         .seconds = {}});
    std::set<Units> seen;
    for (const Trial& trial : outcome.history.trials()) seen.insert(trial.units);
    EXPECT_EQ(outcome.history.trials().size(), 6u) << searcher;
    EXPECT_EQ(seen.size(), 6u) << searcher;
  }
}

TEST(Tuner, FailuresAreResults) {
  const Space space = unit_space(2);
  for (const char* searcher : {"gp", "tpe", "cma-es"}) {
    Problem problem = problem_on(space, searcher, 4, 40);
    const SimulatedOutcome outcome = simulate_study(
        problem, {.train =
                      [](const Trial& trial, std::int64_t) {
                        // Three tenths of the space.
                        const bool diverges = trial.units[0] > 0.7;
                        return std::vector<double>{diverges ? NAN : branin_regret(trial.units)};
                      },
                  .seconds = {}});
    EXPECT_EQ(outcome.history.trials().size(), 40u);
    const auto diverged =
        std::count_if(outcome.history.trials().begin(), outcome.history.trials().end(),
                      [](const Trial& trial) { return trial.end == End::kDiverged; });
    if (std::string(searcher) == "cma-es") continue;  // it stays near the middle for so few
    EXPECT_GT(diverged, 0) << searcher;
    EXPECT_LT(testing::least(outcome.history), 2) << searcher;
  }
  const SimulatedOutcome all =
      simulate_study(problem_on(space, "gp", 4, 15),
                     {.train = [](const Trial&, std::int64_t) { return std::vector<double>{NAN}; },
                      .seconds = {}});
  EXPECT_EQ(all.history.trials().size(), 15u);
  EXPECT_TRUE(best_trials(all.history, {{.name = "f"}}, 1).empty());
}

TEST(Tuner, TrialsThatRunAtOnceAreAtDifferentPlaces) {
  const Space space = unit_space(2);
  for (const char* searcher : {"gp", "tpe", "cma-es", "random", "quasi-random"}) {
    std::vector<Event> stored;
    Tuner tuner(problem_on(space, searcher, 6, 30), {}, [](std::span<const Event>) {});
    std::vector<Job> running;
    for (;;) {
      while (running.size() < 4) {
        const std::optional<Job> job = tuner.next();
        if (!job) break;
        for (const Job& other : running) {
          EXPECT_FALSE(is_same_place(tuner.history().trial(job->trial).units,
                                     tuner.history().trial(other.trial).units))
              << searcher;
        }
        running.push_back(*job);
      }
      if (running.empty()) break;
      const Job done = running.front();
      running.erase(running.begin());
      const double value = branin_regret(tuner.history().trial(done.trial).units);
      tuner.result(done.trial, {.step = done.step, .values = {value}});
    }
  }
}

TEST(Tuner, SeveralObjectivesGiveAFront) {
  const Space space = unit_space(1);
  Problem problem = problem_on(space, "gp", 1, 25);
  problem.objectives = {{.name = "a"}, {.name = "b", .maximise = true}};
  const SimulatedOutcome outcome = simulate_study(
      problem, {.train =
                    [](const Trial& trial, std::int64_t) {
                      const double x = trial.units[0];
                      return std::vector<double>{(x - .2) * (x - .2), -(x - .6) * (x - .6)};
                    },
                .seconds = {}});
  const std::vector<int> front = best_trials(outcome.history, problem.objectives, 1);
  EXPECT_GT(front.size(), 8u);
  for (const int number : front) {
    EXPECT_GT(outcome.history.trial(number).units[0], 0.15);
    EXPECT_LT(outcome.history.trial(number).units[0], 0.65);
  }
}

// --- Schedulers

Problem rung_problem(const Space& space, const char* scheduler, std::int64_t trials) {
  Problem problem = problem_on(space, "random", 3, trials);
  problem.scheduler = scheduler;
  problem.rules = {.seed = 3, .max_steps = 27, .min_steps = 1, .every = 3, .eta = 3};
  return problem;
}

// tuning.md: η = 3, 27 trials, rungs at 1, 3, 9, 27: 81 steps of 729.
TEST(Asha, TakesTheStepsOfItsArithmetic) {
  const Space space = unit_space(2);
  const SimulatedOutcome outcome = simulate_study(
      rung_problem(space, "asha", 27),
      {.train =
           [](const Trial& trial, std::int64_t step) {
             // The first come are the best, so that none is promoted too early.
             return std::vector<double>{trial.number + 1.0 / static_cast<double>(step)};
           },
       .seconds = {}});
  EXPECT_EQ(outcome.history.trials().size(), 27u);
  EXPECT_EQ(outcome.steps, 27 + 9 * 2 + 3 * 6 + 1 * 18);
  EXPECT_EQ(outcome.history.trial(0).end, End::kFinished);
}

TEST(Asha, FindsWhatRandomSearchFindsInAThirdOfTheSteps) {
  const Space space = unit_space(2);
  std::int64_t steps = 0, all = 0;
  int same = 0;
  constexpr int kSeeds = 40;
  for (int seed = 0; seed < kSeeds; ++seed) {
    for (const char* scheduler : {"asha", "none"}) {
      Problem problem = rung_problem(space, scheduler, 60);
      problem.rules.seed = static_cast<std::uint64_t>(seed);
      const SimulatedOutcome outcome = simulate_study(
          problem,
          {.train = [](const Trial& trial,
                       std::int64_t step) { return std::vector<double>{shown(trial, step)}; },
           .seconds = {}});
      (scheduler[0] == 'a' ? steps : all) += outcome.steps;
      const int best = best_trials(outcome.history, problem.objectives, 27).front();
      static int best_of_asha = 0;
      if (scheduler[0] == 'a') best_of_asha = best;
      if (scheduler[0] == 'n') same += best == best_of_asha ? 1 : 0;
    }
  }
  EXPECT_LE(3 * steps, all);
  EXPECT_EQ(same, kSeeds);  // ranks do not change between rungs here
}

// Many trials: at the end of a study workers wait for the last that was promoted.
TEST(Asha, KeepsEightWorkersBusy) {
  const Space space = unit_space(2);
  double seconds[2] = {};
  for (const int workers : {1, 8}) {
    seconds[workers > 1 ? 1 : 0] =
        simulate_study(
            rung_problem(space, "asha", 1000),
            {.train = [](const Trial& trial,
                         std::int64_t step) { return std::vector<double>{shown(trial, step)}; },
             .seconds =
                 [](const Trial& trial, std::int64_t step) {
                   const auto steps = static_cast<double>(step - trial.reached());
                   return steps * (trial.number % 10 == 0 ? 3 : 1);  // stragglers
                 },
             .workers = workers})
            .seconds;
  }
  EXPECT_GE(seconds[0] / seconds[1], 6.5);
}

TEST(Hyperband, FillsItsBrackets) {
  const Space space = unit_space(2);
  const Problem problem = rung_problem(space, "hyperband", 27 + 12 + 6 + 4);
  const Hyperband hyperband(problem.rules);
  std::vector<int> sizes;
  for (const Hyperband::Bracket& bracket : hyperband.brackets()) sizes.push_back(bracket.size);
  EXPECT_EQ(sizes, (std::vector<int>{27, 12, 6, 4}));  // the paper's table for R = 27
  const SimulatedOutcome outcome = simulate_study(
      problem, {.train = [](const Trial& trial,
                            std::int64_t step) { return std::vector<double>{shown(trial, step)}; },
                .seconds = {}});
  std::map<std::pair<int, std::int64_t>, int> counts;
  for (const auto& [trial, step] : outcome.history.results()) {
    ++counts[{outcome.history.trial(trial).bracket, step}];
  }
  EXPECT_EQ((counts[{0, 1}]), 27);
  EXPECT_EQ((counts[{0, 3}]), 9);
  EXPECT_EQ((counts[{0, 9}]), 3);
  EXPECT_EQ((counts[{0, 27}]), 1);
  EXPECT_EQ((counts[{1, 3}]), 12);
  EXPECT_EQ((counts[{1, 9}]), 4);
  EXPECT_EQ((counts[{3, 27}]), 4);
}

TEST(MedianStop, StopsTheWorseHalf) {
  const Space space = unit_space(2);
  Problem problem = rung_problem(space, "median", 40);
  problem.rules.min_steps = 6;
  const SimulatedOutcome outcome = simulate_study(
      problem, {.train = [](const Trial& trial,
                            std::int64_t step) { return std::vector<double>{shown(trial, step)}; },
                .seconds = {}});
  int stopped = 0;
  for (const Trial& trial : outcome.history.trials()) {
    stopped += trial.end == End::kStopped ? 1 : 0;
    if (trial.end == End::kStopped) {
      EXPECT_GE(trial.reached(), 6);
    }
  }
  EXPECT_GT(stopped, 10);
  EXPECT_LT(stopped, 30);
}

}  // namespace
}  // namespace atl::tune
