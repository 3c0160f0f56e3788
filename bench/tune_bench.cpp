// How good atoll's searchers are on functions whose minima are known, and what a suggestion costs.
//   tune_bench regret --searcher gp --function branin --trials 30 --seeds 50 --workers 1
//   tune_bench time --searcher gp --dimensions 8 --trials 100
//   tune_bench surface --searcher gp --seeds 200 [--diverging]
//   tune_bench starts --dimensions 2 --seed 7 --count 10

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "atoll/tune/schedule/registry.h"
#include "atoll/tune/search/draws.h"
#include "atoll/tune/trial/surface.h"

namespace {

using namespace atl::tune;

double sphere(const Units& units) {
  double sum = 0;
  for (const double x : units) sum += (x - 0.3) * (x - 0.3);
  return sum;
}

// One line a seed: the least regret.
void regrets(const std::string& searcher, const std::string& function, int trials, int seeds,
             int first, int workers) {
  const Space space = testing::unit_space(function == "branin" ? 2 : 6);
  for (int seed = first; seed < first + seeds; ++seed) {
    const double regret = testing::search(
        space, searcher, static_cast<std::uint64_t>(seed), trials,
        function == "branin" ? testing::branin_regret : testing::hartmann6_regret, workers);
    fmt::print("{}\n", regret);
  }
}

// Trials until within half a percent of the recorded surface's best, a line a seed. `diverges`:
// 30% of the points, with large learning rates, do.
void trials_on_surface(const std::string& searcher, int seeds, int first, bool diverges) {
  const testing::Surface surface;
  for (int seed = first; seed < first + seeds; ++seed) {
    const int trials = surface.trials_to(
        0.005, searcher, static_cast<std::uint64_t>(seed), [&](const Units& units) {
          return diverges && testing::diverges_on_surface(surface, units)
                     ? std::numeric_limits<double>::quiet_NaN()
                     : surface.loss(units);
        });
    fmt::print("{}\n", trials);
  }
}

// The points that searchers with a model begin with, a line each.
void starts(int dimensions, std::uint64_t seed, int count) {
  const QuasiRandom points(seed, static_cast<std::size_t>(dimensions));
  for (int i = 0; i < count; ++i) {
    for (const double x : points.point(static_cast<std::uint64_t>(i))) fmt::print("{:.17g} ", x);
    fmt::print("\n");
  }
}

// Seconds of a suggestion beside so many results.
void suggestions(const std::string& name, int dimensions, int trials, int repeats) {
  using Clock = std::chrono::steady_clock;
  const Space space = testing::unit_space(static_cast<std::size_t>(dimensions));
  const std::unique_ptr<Searcher> searcher = make_searcher(name);
  SearchView view = {.space = space, .number = trials};
  Draws draws(1, DrawFor::kRandom, 0);
  for (int i = 0; i < trials + repeats; ++i) {
    Units units(space.size());
    for (double& x : units) x = draws.uniform();
    view.done.push_back({i, units, sphere(units), ""});
  }
  std::vector<Observation> more(view.done.begin() + trials, view.done.end());
  view.done.resize(static_cast<std::size_t>(trials));
  for (int i = 0; i < repeats; ++i) {
    const auto start = Clock::now();
    searcher->suggest(view);
    const std::chrono::duration<double> took = Clock::now() - start;
    fmt::print("{}\n", took.count());
    view.done.push_back(more[static_cast<std::size_t>(i)]);
    ++view.number;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("searchers of atoll tune");
  app.require_subcommand(1);
  std::string searcher = "gp", function = "branin";
  int trials = 30, seeds = 50, first = 0, workers = 1, dimensions = 8, repeats = 11, count = 10;
  std::uint64_t seed = 0;
  CLI::App* regret = app.add_subcommand("regret", "the least regret, a line a seed");
  CLI::App* time = app.add_subcommand("time", "seconds of suggestions, a line each");
  CLI::App* surface = app.add_subcommand("surface", "trials to the recorded best, a line a seed");
  bool diverges = false;
  surface->add_flag("--diverging", diverges, "30% of the points diverge");
  for (CLI::App* part : {regret, time, surface}) {
    part->add_option("--searcher", searcher)->check(CLI::IsMember(searcher_names()));
  }
  for (CLI::App* part : {regret, time}) part->add_option("--trials", trials);
  for (CLI::App* part : {regret, surface}) {
    part->add_option("--seeds", seeds);
    part->add_option("--first", first);
  }
  regret->add_option("--function", function)->check(CLI::IsMember({"branin", "hartmann6"}));
  regret->add_option("--workers", workers);
  time->add_option("--dimensions", dimensions);
  time->add_option("--repeats", repeats);
  CLI::App* start = app.add_subcommand("starts", "the points that searches begin with");
  start->add_option("--dimensions", dimensions);
  start->add_option("--seed", seed);
  start->add_option("--count", count);
  CLI11_PARSE(app, argc, argv);
  if (regret->parsed()) regrets(searcher, function, trials, seeds, first, workers);
  if (surface->parsed()) trials_on_surface(searcher, seeds, first, diverges);
  if (start->parsed()) starts(dimensions, seed, count);
  if (time->parsed()) suggestions(searcher, dimensions, trials, repeats);
}
