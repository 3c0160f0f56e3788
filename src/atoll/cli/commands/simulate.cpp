#include "atoll/cli/commands/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/resident.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/commands.h"
#include "atoll/compress/codec.h"
#include "atoll/data/corpus.h"
#include "atoll/island/policy/policy.h"
#include "atoll/nn/model.h"
#include "atoll/train/checkpoint/corpus_options.h"
#include "atoll/train/config/outer_options.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"
#include "atoll/train/progress/progress.h"
#include "atoll/train/trainer.h"

namespace atl::cli {

namespace {

// A run of a thousand islands is computed for minutes.
constexpr std::chrono::seconds kTellEvery{30};

struct Unit {
  std::string_view name;
  double factor = 1;
};

// A number and one of these units; nothing else.
double parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view option,
                      std::string_view example) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit =
      error == std::errc() ? text.substr(static_cast<std::size_t>(end - text.data())) : "";
  for (const Unit& known : units) {
    if (unit == known.name && number >= 0 && std::isfinite(number)) return number * known.factor;
  }
  throw user_error("{} \"{}\" is not understood; write it like {}", option, text, example);
}

struct Options {
  std::string recipe;
  int islands = 4;
  std::string link = "100Mbit/s,40ms";
  std::string mtbf;
  std::string restart = "30s";
  std::string step = "1s";
  double jitter = 0.05;
  double parameters = 0;
  int outer_steps = 0;
  std::uint64_t seed = 1;
  bool trace = false;
};

double count_parameters(const train::TrainConfig& config) {
  const train::CorpusOptions data = train::corpus_options(config);
  std::int64_t vocab_size = config.data.vocab_size;
  if (!data.shards.empty()) vocab_size = data::Corpus(data.shards.front()).vocab_size();
  train::TrainState state(train::state_options(config, vocab_size, -1, 1, 0));
  return static_cast<double>(nn::count_parameters(state.model()).total);
}

island::SimulationOptions simulation(const Options& options, const train::TrainConfig& config) {
  if (config.train.epochs > 0 && options.outer_steps == 0) {
    throw user_error("a simulation has no data to count train.epochs of; give train.steps");
  }
  const train::OuterSettings& outer = config.outer;
  const std::int64_t interval = outer.inner_steps / outer.fragments;
  const std::int64_t outer_steps = options.outer_steps > 0
                                       ? options.outer_steps
                                       : std::max<std::int64_t>(1, config.train.steps / interval);
  island::SimulationOptions simulated = simulation_of(
      outer, {.islands = options.islands,
              .link = parse_link(options.link),
              .parameters = options.parameters > 0 ? options.parameters : count_parameters(config),
              .step_seconds = parse_duration(options.step, "--step"),
              .outer_steps = outer_steps});
  simulated.jitter = options.jitter;
  simulated.restart_after = parse_duration(options.restart, "--restart");
  if (!options.mtbf.empty()) simulated.mtbf = parse_duration(options.mtbf, "--mtbf");
  simulated.measures_cpu = true;
  return simulated;
}

// Of this process, all simulated islands included; 0 where the system does not say.
double peak_bytes() {
  return static_cast<double>(peak_resident_bytes());
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

int run(const Options& options, const Invocation& invocation) {
  const train::Recipe recipe(options.recipe, invocation.overrides);
  island::SimulationOptions simulated = simulation(options, recipe.config());
  if (options.trace) {
    simulated.trace = [](const std::string& line) { fmt::print("{}\n", line); };
  }
  simulated.progress = tell_progress(simulated.plan.total_batches, kTellEvery,
                                     [](const std::string& line) { log::info("{}", line); });
  const double before = peak_bytes();
  const island::SimulationReport report = island::simulate(simulated, options.seed);
  fmt::print("{}", describe(simulated, report));
  fmt::print("  {:<24} {} ({} before it began)\n", "memory of the simulation",
             format_bytes(peak_bytes()), format_bytes(before));
  if (report.violations.empty()) return 0;
  throw make_error(ErrorKind::kInternal, "seed {}: {}", options.seed, report.violations.front());
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("recipe", options->recipe,
                    "TOML file; its model and outer.* say what is exchanged when");
  parser.add_option("--islands", options->islands, "islands").range(1, 100'000);
  parser.add_option("--link", options->link, "of each island: bits a second, latency one way");
  parser.add_option("--mtbf", options->mtbf, "mean time between crashes of an island; none: never");
  parser.add_option("--restart", options->restart, "until a crashed island is there again");
  parser.add_option("--step", options->step, "time of an inner step");
  parser.add_option("--jitter", options->jitter, "of that, relative").range(0.0, 1.0);
  parser.add_option("--parameters", options->parameters, "of the model, instead of the recipe's")
      .range(0.0, 1e13);
  parser.add_option("--outer-steps", options->outer_steps, "instead of what train.steps gives")
      .range(1, 1'000'000);
  parser.add_option("--seed", options->seed, "the same seed gives the same run");
  parser.add_flag("--trace", options->trace, "print every message, record and fault");
  return [options](const Invocation& invocation) { return run(*options, invocation); };
}

}  // namespace

island::SimulationOptions simulation_of(const train::OuterSettings& outer,
                                        const SimulatedRun& run) {
  island::SimulationOptions simulated;
  simulated.num_islands = run.islands;
  simulated.link = run.link;
  simulated.parameters = run.parameters;
  constexpr std::int64_t kMany = 1 << 18;
  simulated.bytes_per_parameter =
      static_cast<double>(compress::make_codec(outer.codec)->max_bytes(kMany)) / kMany;
  simulated.step_seconds = run.step_seconds;
  const std::int64_t interval = outer.inner_steps / outer.fragments;
  simulated.overlap = outer.algorithm == "eager" ? interval : outer.overlap;
  simulated.plan = {.num_fragments = static_cast<int>(outer.fragments),
                    .inner_steps = interval,
                    .total_batches = interval * run.outer_steps * run.islands,
                    .min_islands = std::max(1, run.islands / 2),
                    .quorum = static_cast<int>(outer.quorum),
                    .grace_seconds = outer.grace_s};
  simulated.plan.is_async = outer.algorithm == "async";
  if (simulated.plan.is_async) simulated.overlap = interval;
  simulated.plan.is_gossip = outer.algorithm == "gossip";
  if (simulated.plan.is_gossip) simulated.bytes_per_parameter *= 2;  // anchor and momentum
  if (outer.policy != "fixed") {
    simulated.plan.policy =
        train::policy_plan(outer, run.parameters / static_cast<double>(outer.fragments));
    const std::string why = island::policy_fault(simulated.plan.policy, run.islands);
    if (!why.empty()) throw user_error("outer.policy {}: {}", outer.policy, why);
  }
  simulated.heartbeat_every = 0.5;
  simulated.checkpoint_every = 1;
  // Long enough for everything to be repeated many times over.
  const double once = static_cast<double>(run.outer_steps) *
                      (static_cast<double>(interval) * simulated.step_seconds + 60);
  simulated.max_seconds = 100 * once;
  return simulated;
}

double parse_duration(std::string_view text, std::string_view option) {
  constexpr std::array<Unit, 6> kUnits = {
      {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};
  return parse_quantity(text, kUnits, option, "40ms, 1.5s, 10min or 2h");
}

double parse_bytes(std::string_view text, std::string_view option) {
  constexpr std::array<Unit, 5> kUnits = {
      {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}}};
  return parse_quantity(text, kUnits, option, "512MiB or 16GiB");
}

island::SimulatedLink parse_link(std::string_view text) {
  constexpr std::array<Unit, 4> kUnits = {
      {{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9}}};
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    throw user_error("--link \"{}\" is not understood; write it like 100Mbit/s,40ms", text);
  }
  const std::string_view speed = text.substr(0, comma);
  island::SimulatedLink link;
  link.latency = parse_duration(text.substr(comma + 1), "the latency in --link");
  if (speed != "unlimited") {
    link.bits_per_second =
        parse_quantity(speed, kUnits, "the speed in --link", "100Mbit/s or unlimited");
    if (link.bits_per_second < 1) throw user_error("--link {}: nothing gets through", text);
  }
  return link;
}

std::function<void(const island::SimulationProgress&)> tell_progress(
    std::int64_t total_batches, std::chrono::milliseconds every,
    std::function<void(const std::string&)> tell) {
  using Clock = std::chrono::steady_clock;
  return [=, last = Clock::now()](const island::SimulationProgress& progress) mutable {
    if (Clock::now() - last < every) return;
    last = Clock::now();
    const double part = static_cast<double>(progress.batches) /
                        static_cast<double>(std::max<std::int64_t>(total_batches, 1));
    tell(fmt::format("{:.0f}% simulated: {} committed in {} of the run's time", 100 * part,
                     counted(progress.commits, "outer step"),
                     train::format_duration(progress.seconds)));
  };
}

std::string describe(const island::SimulationOptions& options,
                     const island::SimulationReport& report) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<24} {}\n", name, value);
  };
  const double commits = static_cast<double>(std::max<std::int64_t>(1, report.commits));
  const double islands = options.num_islands;
  const double round = report.seconds / commits;
  text += fmt::format("simulated, seed {}\n", report.seed);
  line("islands", fmt::format("{}, {}, {}", format_count(options.num_islands),
                              counted(static_cast<std::int64_t>(options.parameters), "parameter"),
                              counted(options.plan.num_fragments, "fragment")));
  line("outer steps", fmt::format("{} committed, {} abandoned, {} void", report.commits,
                                  counted(report.aborts, "attempt"), report.voids));
  line("crashes",
       fmt::format("{}, {} turned out", report.crashes, counted(report.evictions, "island")));
  line("wall time",
       fmt::format("{}, {:.1f} s an outer step, longest pause {:.1f} s",
                   train::format_duration(report.seconds), round, report.longest_pause));
  line("utilisation",
       fmt::format("{:.1f}% of all island-seconds computed", 100 * report.utilisation));
  line("goodput",
       fmt::format("{:.1f}% of them were for batches that were committed", 100 * report.goodput));
  line("sent",
       fmt::format("{} by each island and outer step, {} in all",
                   format_bytes(report.bytes / commits / islands), format_bytes(report.bytes)));
  if (options.plan.policy.policy != "fixed") {
    line("policy", fmt::format("{}: {}, {} in the end", options.plan.policy.policy,
                               counted(report.schedule_changes, "change"),
                               island::to_text(report.schedule, options.plan.num_fragments)));
    std::vector<double> errors = report.prediction_errors;
    std::ranges::sort(errors);
    if (!errors.empty()) {
      const auto at = [&](double part) {
        return 100 *
               errors[static_cast<std::size_t>(part * static_cast<double>(errors.size() - 1))];
      };
      line("exchanges predicted",
           fmt::format("within {:.0f}% (median), {:.0f}% (95%)", at(0.5), at(0.95)));
    }
  }
  line("batches",
       fmt::format("{} of {} committed once each", report.batches, options.plan.total_batches));
  line("coordinator CPU",
       fmt::format("{:.2f} ms an outer step, {:.4f}% of it", 1e3 * report.coordinator_cpu / commits,
                   report.seconds > 0 ? 100 * report.coordinator_cpu / report.seconds : 0));
  if (!report.halted.empty()) line("halted", report.halted);
  for (const std::string& violation : report.violations) line("VIOLATION", violation);
  return text;
}

Command simulate_command() {
  return {.name = "simulate",
          .summary = "Run coordinator and islands on a virtual clock and network.",
          .example =
              "  atoll simulate recipes/kjv-demo.toml --islands 1000 "
              "--link 100Mbit/s,40ms --mtbf 2h\n"
              "  atoll simulate recipes/kjv-islands.toml --islands 4 --link 5Mbit/s,50ms "
              "--step 0.1s --outer.policy=auto",
          .stray = "one recipe is all that it takes; texts are given as --data.text=a.txt,b.txt",
          .takes_overrides = true,
          .add = add};
}

}  // namespace atl::cli
