#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>

#include "atoll/base/log.h"
#include "atoll/base/processes/resident.h"
#include "atoll/base/processes/stop_signals.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/commands/auto_layout.h"
#include "atoll/cli/models/samples.h"
#include "atoll/cli/pages/metrics_page.h"
#include "atoll/cli/pages/run_watch.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/comm/flight_record.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/islands.h"
#include "atoll/launch/membership.h"
#include "atoll/launch/param_servers.h"
#include "atoll/launch/rank_main.h"
#include "atoll/launch/run_plan.h"
#include "atoll/rl/policy_source.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/config/rules.h"
#include "atoll/train/loop/settled_by_data.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/model/options.h"
#include "atoll/train/progress/interrupt.h"
#include "atoll/train/ranks/sharing.h"
#include "atoll/train/trainer.h"
#include "atoll/watch/tensorboard.h"

namespace atl::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string recipe;
  bool is_rl = false;  // the command is `atoll rl`
  launch::RankFlags ranks;
  std::string trace;
  std::optional<int> islands;
  int island_restarts = 3;
  launch::RankOptions member;
  WatchFlags watch;
};

// What a rank trains with.
struct Call {
  const train::Recipe& recipe;
  const Options& options;
  const std::vector<std::string>& overrides;
};

// Trains to the end, or to a signal; returns the exit code.
int run_trainer(const train::Recipe& recipe, train::Trainer& trainer, RunWatch& watch,
                launch::RankReporter& reporter, int num_ranks) {
  std::optional<PredictionCheck> prediction;
  if (const auto choice = choice_of(recipe.config(), num_ranks); choice && trainer.is_lead()) {
    trainer.add_sink(prediction.emplace(*choice));
  }
  trainer.on_samples([&recipe](std::int64_t step, const fs::path& checkpoint) {
    write_samples(recipe.config(), step, checkpoint);
  });
  reporter.begun(trainer.first_step());
  trainer.on_step([&reporter](std::int64_t step) { reporter.step(step); });
  std::unique_ptr<watch::TensorBoardSink> tensorboard;
  const auto lead = [&](bool takes_over) {
    watch.begin(trainer, takes_over);
    if (!recipe.config().log.tensorboard) return;
    const std::int64_t first = trainer.first_step();
    tensorboard =
        std::make_unique<watch::TensorBoardSink>(recipe.config().run.dir, first == 0 ? -1 : first);
    trainer.add_sink(*tensorboard);
  };
  if (trainer.is_lead()) lead(/*takes_over=*/false);
  trainer.on_lead([&lead] { lead(/*takes_over=*/true); });
  const train::TrainOutcome outcome = trainer.run();
  if (prediction && !prediction->text().empty()) log::info("{}", prediction->text());
  if (outcome.signal == 0) {
    if (outcome.checkpoint.empty()) {
      log::info("finished; worker 0 has the model");
    } else if (trainer.is_lead()) {
      log::info("finished; the model is in {} (at most {:.1f} MiB of memory)",
                outcome.checkpoint.string(),
                static_cast<double>(peak_resident_bytes()) / (1 << 20));
    }
    return 0;
  }
  if (trainer.is_lead() && !outcome.checkpoint.empty()) {
    const std::string why = outcome.signal == SIGPIPE
                                ? "as nobody reads its output,"
                                : fmt::format("by {}", stop_signal_name(outcome.signal));
    log::info("stopped {} after step {} and saved {}; the same command goes on from there", why,
              outcome.step, outcome.checkpoint.string());
  }
  return 128 + outcome.signal;  // what a shell reports of a process that the signal ended
}

bool usr1_saves(const train::Recipe& recipe) {
  return recipe.config().run.on_signal == "save";
}

// Settings of what islands do together mean nothing to a run without any.
void refuse_outer_alone(const train::Recipe& recipe) {
  if (!recipe.config().island.coordinator.empty()) return;
  for (const Setting& setting : recipe.settings().all()) {
    if (!setting.key.starts_with("outer.") || setting.is_default()) continue;
    throw user_error(
        "{} ({}) is for a run of islands; add --islands N, or island.coordinator=HOST:PORT",
        setting.key, setting.origin);
  }
}

// A recipe says by rl.prompts which of the two commands it is for.
void require_command(const Options& options, const train::Recipe& recipe) {
  if (recipe.config().rl.is_given() == options.is_rl) return;
  if (options.is_rl) {
    throw user_error(
        "rl.prompts is not set, and `atoll rl` learns from what a model answers to prompts; give a "
        "JSONL file of them, or use `atoll train`");
  }
  throw user_error("{} is for `atoll rl`; call that, or leave rl.* out",
                   train::named(recipe.settings(), "rl.prompts"));
}

// The command that goes on with a run.
std::string command_to_resume(const Options& options, const std::vector<std::string>& overrides,
                              int ranks, const std::string& without = "") {
  std::string command = resume_command(options.recipe, overrides, ranks, without);
  constexpr std::string_view kTrain = "atoll train ";
  if (options.is_rl && command.starts_with(kTrain)) {
    command.replace(0, kTrain.size(), "atoll rl ");
  }
  return command;
}

int train_with(const Call& call, comm::World& world, launch::RankReporter& reporter) {
  const train::Recipe& recipe = call.recipe;
  refuse_outer_alone(recipe);
  train::TrainConfig config = recipe.config();
  if (config.device.threads == 0) config.device.threads = launch::fair_threads(world);
  RunWatch watch(recipe, command_to_resume(call.options, call.overrides, world.size(), "optim.lr"));
  if (!call.options.is_rl) {
    train::Trainer trainer(config, recipe.settings(), world);
    return run_trainer(recipe, trainer, watch, reporter, world.size());
  }
  std::optional<rl::PolicySource> source;
  world.agree([&] { source.emplace(config); });
  train::Trainer trainer(config, recipe.settings(), world, *source);
  return run_trainer(recipe, trainer, watch, reporter, world.size());
}

// Trains as one rank of `world`; returns the exit code.
int train_rank(const Call& call, comm::World& world, launch::RankReporter& reporter) {
  const train::Recipe& recipe = call.recipe;
  try {
    return train_with(call, world, reporter);
  } catch (const comm::PeerError& error) {
    // Where something has started the ranks, that tells.
    const int teller = error.rank() == 0 ? 1 : 0;
    if (world.rank() == teller && !reporter.enabled()) {
      tell_rank_lost(recipe.config(), reporter.last_step(), error.what(),
                     command_to_resume(call.options, call.overrides, world.size()));
    }
    throw comm::with_flight_record(error, world, recipe.config().run.dir);
  }
}

comm::WorldOptions world_options(const train::TrainConfig& config) {
  return {.timeout_s = config.comm.timeout_s,
          .algorithm = comm::algorithm_named(config.comm.algorithm)};
}

int run_threads(const Call& call, const launch::RankPlan& plan) {
  int code = 0;
  launch::run_rank_threads(plan, world_options(call.recipe.config()), [&](comm::World& world) {
    launch::RankReporter nobody(-1, world.rank());
    const int mine = train_rank(call, world, nobody);
    if (world.rank() == 0) code = mine;
  });
  return code;
}

int run_parent(const launch::RankPlan& plan, const Options& options, const Invocation& invocation) {
  launch::SignalFd signals;  // before any thread is made
  // Once here rather than by every rank.
  const bool is_here = plan.hostfile.empty();
  const std::vector<std::string> overrides =
      is_here ? with_layout(options.recipe, invocation.overrides, plan.ranks)
              : invocation.overrides;
  const train::Recipe recipe(options.recipe, overrides);
  require_command(options, recipe);
  if (usr1_saves(recipe)) signals.pass_usr1_on();
  train::require_chosen_layout(recipe.config(),
                               "set what `atoll plan --ranks N --link` prints first");
  std::vector<std::string> hosts(static_cast<std::size_t>(plan.here > 0 ? plan.here : plan.ranks));
  if (!plan.hostfile.empty()) {
    hosts = launch::place_ranks(launch::read_hostfile(plan.hostfile), plan.ranks, plan.hostfile);
  }
  const int ranks = plan.here > 0 ? plan.ranks : static_cast<int>(hosts.size());
  train::check_ranks(recipe.config(), ranks);
  const bool has_remote = std::any_of(hosts.begin(), hosts.end(),
                                      [](const std::string& host) { return !host.empty(); });
  if (is_here) train::check_before_ranks(recipe.config(), plan.ranks);
  launch::wait_for_rendezvous(plan, recipe.config().comm.timeout_s);
  launch::TrainCall call = launch::train_call(options.recipe, overrides);
  if (options.is_rl) call.command = "rl";
  launch::Generations generations(plan.backend, call, plan.rendezvous, has_remote,
                                  {.first = plan.rank, .ranks = ranks});
  const launch::GroupEnd end = generations.run(hosts, {}, signals);
  const launch::GroupOutcome outcome = launch::outcome_of(end);
  if (!outcome.lost.empty() && end.stop_signal == 0) {
    tell_rank_lost(recipe.config(), end.last_step(), outcome.cause,
                   command_to_resume(options, invocation.overrides, plan.ranks));
  }
  return launch::finish(outcome);
}

int run_as_member(const launch::RankPlan& plan, const Options& options,
                  const Invocation& invocation) {
  // A mistake in the recipe, which all ranks read, is told by one of them once they are together.
  std::unique_ptr<train::Recipe> recipe;
  std::optional<Error> mistake;
  try {
    recipe = std::make_unique<train::Recipe>(options.recipe, invocation.overrides);
  } catch (const Error& error) {
    mistake = error;
  }
  // Before anybody is told that this rank is there.
  if (recipe && usr1_saves(*recipe)) train::save_at_usr1(/*is_told=*/plan.rank == 0);
  launch::wait_for_rendezvous(plan, recipe ? recipe->config().comm.timeout_s : 0);
  return launch::run_rank(
      plan, options.member, recipe ? world_options(recipe->config()) : comm::WorldOptions(),
      [&](comm::World& world, launch::RankReporter& reporter) {
        world.agree([&] {
          if (mistake) throw Error(*mistake);
          require_command(options, *recipe);
        });
        launch::agree_on_settings(world, ATOLL_VERSION, recipe->settings());
        // One after another: the first makes the tokens.
        for (const bool is_first : {true, false}) {
          world.agree([&] {
            if ((world.rank() == 0) == is_first) train::settle_by_data(*recipe, is_first);
          });
        }
        return train_rank({*recipe, options, invocation.overrides}, world, reporter);
      });
}

// A rank under `atoll launch` that goes on when it loses others.
int run_as_survivor(const Options& options, const Invocation& invocation) {
  return launch::run_watched(
      options.member, options.member.number, [&](launch::RankReporter& reporter) {
        // A signal that comes before it has joined stops it with the others, after a step; to them
        // a rank that is gone at once would be lost.
        std::optional<train::InterruptGuard> guard;
        if (options.member.joins) guard.emplace();
        train::Recipe recipe(options.recipe, invocation.overrides);
        if (usr1_saves(recipe)) train::save_at_usr1(/*is_told=*/options.member.number == 0);
        const std::vector<std::string> agreement =
            launch::agreement_lines(ATOLL_VERSION, recipe.settings());
        train::settle_by_data(recipe, /*tells=*/options.member.number == 0);
        launch::LaunchMembership membership({.rendezvous = options.ranks.rendezvous,
                                             .number = options.member.number,
                                             .generation = options.member.generation,
                                             .joins = options.member.joins,
                                             .backend = options.ranks.backend,
                                             .agreement = agreement},
                                            world_options(recipe.config()));
        RunWatch watch(recipe, resume_command(options.recipe, invocation.overrides, 0, "optim.lr"));
        train::Trainer trainer(recipe.config(), recipe.settings(), membership);
        return run_trainer(recipe, trainer, watch, reporter, 0);
      });
}

// Serves metrics of a process that orders a run, at metrics.listen; null: not asked for.
template <typename Service>
std::shared_ptr<void> serve_page_of(const Service& service,
                                    const train::MetricsSettings& settings) {
  const watch::PrometheusAddress address = metrics_address(settings);
  watch::open_access(address);
  if (!address.is_asked()) return nullptr;
  return std::make_shared<watch::PrometheusServer>(
      address, [&service] { return to_page(service.status()); });
}

int run_all_islands(const Options& options, const Invocation& invocation) {
  const launch::RankFlags& ranks = options.ranks;
  if (ranks.num_ranks || ranks.rank || !ranks.hostfile.empty() || !ranks.backend.empty()) {
    throw user_error(
        "--islands starts one process an island; for islands of several ranks start each of them "
        "with --island.coordinator=HOST:PORT --island.name=NAME -n N, beside `atoll coordinator`");
  }
  if (*options.islands < 1) throw user_error("--islands={}: at least 1", *options.islands);
  const train::Recipe recipe(options.recipe, invocation.overrides);
  if (recipe.config().train.epochs > 0) {
    throw user_error(
        "train.epochs is for one island: several take their batches from the coordinator, which "
        "counts steps; give train.steps");
  }
  const train::ParallelSettings& parallel = recipe.config().parallel;
  for (const auto& [axis, size] : {std::pair("tp", parallel.tp), std::pair("pp", parallel.pp),
                                   std::pair("cp", parallel.cp), std::pair("ep", parallel.ep)}) {
    if (size == 1) continue;
    throw user_error(
        "--islands starts one rank an island, and parallel.{} = {} needs several; leave one of "
        "them "
        "out",
        axis, size);
  }
  const train::TrainConfig& config = recipe.config();
  const fs::path dir = config.run.dir;
  std::function<void(std::int64_t, const std::string&)> lost;
  if (alerts_off(config.alerts).count(metrics::AlertKind::kIslandLost) == 0) {
    lost = island_alerts(dir, dir, config.alerts.webhook);
  }
  return launch::run_islands({.recipe = options.recipe,
                              .overrides = invocation.overrides,
                              .num_islands = *options.islands,
                              .max_restarts = options.island_restarts,
                              .on_island_lost = lost,
                              .serve = [&config](const island::CoordinatorService& coordinator) {
                                return serve_page_of(coordinator, config.metrics);
                              }});
}

// A run with parameter servers whose workers and servers -n starts here.
bool starts_servers(const Options& options, const Invocation& invocation) {
  if (!options.ranks.num_ranks || options.member.number >= 0) return false;
  const train::Recipe recipe(options.recipe, invocation.overrides);
  const train::SyncSettings& sync = recipe.config().sync;
  return sync.mode == "ps" && sync.addresses.empty();
}

int run_servers(const Options& options, const Invocation& invocation) {
  const launch::RankFlags& ranks = options.ranks;
  if (ranks.rank || !ranks.hostfile.empty() || !ranks.backend.empty()) {
    throw user_error(
        "sync.mode = ps: workers speak with servers and not with each other, so --rank, --hostfile "
        "and --backend mean nothing; on several machines start `atoll server` and workers with "
        "sync.addresses");
  }
  if (*ranks.num_ranks < 1) throw user_error("-n {}: at least 1", *ranks.num_ranks);
  const train::Recipe recipe(options.recipe, invocation.overrides);
  return launch::run_param_servers({.recipe = options.recipe,
                                    .overrides = invocation.overrides,
                                    .num_workers = static_cast<int>(*ranks.num_ranks),
                                    .serve = [&](const param_server::SchedulerService& scheduler) {
                                      return serve_page_of(scheduler, recipe.config().metrics);
                                    }});
}

// The directory that --watch shows.
std::vector<std::string> watched_dirs(const Options& options, const Invocation& invocation) {
  if (!options.watch.is_asked()) return {};
  const train::Recipe recipe(options.recipe, invocation.overrides);
  return {recipe.config().run.dir};
}

launch::RunKind kind_of_run(const Options& options, const Invocation& invocation) {
  const train::Recipe recipe(options.recipe, invocation.overrides);
  if (!recipe.config().sync.addresses.empty()) return launch::RunKind::kWorker;
  return recipe.config().island.coordinator.empty() ? launch::RunKind::kWhole
                                                    : launch::RunKind::kIsland;
}

int run(const Options& options, const Invocation& invocation) {
  if (options.is_rl && options.islands) {
    throw user_error("--islands is for `atoll train`: islands have no sampler; use -n");
  }
  // Of ranks that are started one by one the first does it.
  const bool is_first = options.ranks.rank.value_or(0) == 0;
  const WatchBeside watch(is_first ? options.watch : WatchFlags(),
                          watched_dirs(options, invocation));
  if (options.islands || starts_servers(options, invocation)) {
    launch::forget_rank_environment();  // what is started here is no rank of an engine's
    return options.islands ? run_all_islands(options, invocation)
                           : run_servers(options, invocation);
  }
  if (options.member.number >= 0) return run_as_survivor(options, invocation);
  const launch::RankPlan plan =
      launch::plan_run(options.ranks, [&] { return kind_of_run(options, invocation); });
  if (plan.role == launch::Role::kParent) return run_parent(plan, options, invocation);
  if (plan.role == launch::Role::kRank) return run_as_member(plan, options, invocation);
  const int ranks = plan.role == launch::Role::kThreads ? plan.ranks : 1;
  train::Recipe recipe(options.recipe, with_layout(options.recipe, invocation.overrides, ranks));
  require_command(options, recipe);
  if (usr1_saves(recipe)) train::save_at_usr1(/*is_told=*/true);
  const Call call = {recipe, options, invocation.overrides};
  if (plan.role == launch::Role::kThreads) {
    train::check_ranks(recipe.config(), plan.ranks);  // before there are so many
    train::check_before_ranks(recipe.config(), plan.ranks);
  }
  train::settle_by_data(recipe, /*tells=*/true);
  if (plan.role == launch::Role::kThreads) return run_threads(call, plan);
  launch::RankReporter nobody(-1, 0);
  return train_rank(call, *comm::open_self(), nobody);
}

// An option for those who start ranks, not for people.
template <typename T>
void add_hidden(ArgumentParser& parser, const char* name, T& value) {
  parser.add_option(name, value).hide();
}

void add_member_flags(ArgumentParser& parser, launch::RankOptions& member) {
  add_hidden(parser, "--report-fd", member.report_fd);
  add_hidden(parser, "--generation", member.generation);
  add_hidden(parser, "--member", member.number);
  parser.add_flag("--joins", member.joins).hide();
  parser.add_flag("--watch-input", member.watches_input).hide();
}

constexpr const char* kMfu =
    "\nMFU in its lines is tok/s x FLOPs/token / peak. FLOPs/token is 6 for each parameter that "
    "is\n"
    "trained and 6 for layers x context x heads x head_dim; `atoll plan` prints the sum. peak is\n"
    "what the CPUs did in f32 multiply-adds when the run began.";

Action add(ArgumentParser& parser) {
  parser.append_description(std::string("\n") + kMfu);
  const auto options = std::make_shared<Options>();
  parser.add_option("recipe", options->recipe, "TOML file; docs/configuration.md lists its keys");
  launch::RankFlags& ranks = options->ranks;
  parser.add_option("-n", ranks.num_ranks, "Ranks to train on");
  parser.add_option("--islands", options->islands,
                    "Islands to train on this machine, which exchange seldom (outer.*)");
  parser
      .add_option("--island-restarts", options->island_restarts,
                  "How often each of them is started again when it dies")
      .show_default();
  parser.add_option("--backend", ranks.backend, launch::backend_help());
  parser.add_option("--hostfile", ranks.hostfile, "Lines of NAME slots=N: hosts to start ranks on");
  parser.add_option("--rank", ranks.rank, "Which rank this is, when each is started by hand");
  parser.add_option("--ranks", ranks.ranks, "How many there are then");
  parser.add_option("--trace", options->trace,
                    "File to write a trace of the first steps to (log.trace)");
  parser.add_option("--rendezvous", ranks.rendezvous,
                    "Where they meet: tcp://HOST:PORT or file:///DIRECTORY");
  add_watch_flags(parser, options->watch);
  add_member_flags(parser, options->member);
  return [options](Invocation invocation) {
    if (!options->trace.empty()) invocation.overrides.push_back("--log.trace=" + options->trace);
    return run(*options, invocation);
  };
}

Action add_rl(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  options->is_rl = true;
  parser.add_option("recipe", options->recipe, "TOML file; docs/configuration.md lists its keys");
  launch::RankFlags& ranks = options->ranks;
  parser.add_option("-n", ranks.num_ranks, "Ranks, each of which samples and trains its share");
  parser.add_option("--backend", ranks.backend, launch::backend_help());
  parser.add_option("--hostfile", ranks.hostfile, "Lines of NAME slots=N: hosts to start ranks on");
  parser.add_option("--rank", ranks.rank, "Which rank this is, when each is started by hand");
  parser.add_option("--ranks", ranks.ranks, "How many there are then");
  parser.add_option("--rendezvous", ranks.rendezvous,
                    "Where they meet: tcp://HOST:PORT or file:///DIRECTORY");
  add_watch_flags(parser, options->watch);
  add_member_flags(parser, options->member);
  return [options](const Invocation& invocation) { return run(*options, invocation); };
}

}  // namespace

Command rl_command() {
  return {.name = "rl",
          .summary =
              "Train a model on what it answers, by rewards that are checked (GRPO); the "
              "same command again goes on where it stopped.",
          .example =
              "  atoll rl recipes/rl-sums.toml\n"
              "  atoll rl recipes/rl-sums.toml -n 2 --run.dir=runs/two",
          .stray = "one recipe is all that it takes; prompts are given as --rl.prompts=a.jsonl",
          .takes_overrides = true,
          .add = add_rl,
          .memory_advice = train::kTrainingMemoryAdvice};
}

Command train_command() {
  return {.name = "train",
          .summary = "Train a model; the same command again goes on where it stopped.",
          .example =
              "  atoll train recipes/kjv-demo.toml --train.steps=200 --run.dir=runs/short\n"
              "  atoll train recipes/kjv-demo.toml -n 2 --train.micro_batch=1 "
              "--run.dir=runs/two\n"
              "  atoll train recipes/kjv-demo.toml --islands 2 --run.dir=runs/islands",
          .stray = "one recipe is all that it takes; texts are given as --data.text=a.txt,b.txt",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
