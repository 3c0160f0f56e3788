#include <algorithm>
#include <memory>
#include <optional>

#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/commands/launch_print.h"
#include "atoll/cli/pages/metrics_page.h"
#include "atoll/cli/pages/run_watch.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/launch/agent.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/join.h"
#include "atoll/launch/rank_main.h"
#include "atoll/launch/ranks.h"
#include "atoll/launch/run_plan.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/memory_check.h"

namespace atl::cli {

namespace {

constexpr int kMost = 1024;  // ranks on one host
constexpr std::string_view kFile = "file://";
constexpr std::string_view kTcp = "tcp://";

void check_rendezvous(const launch::LaunchOptions& options) {
  if (options.rendezvous.empty() || options.rendezvous.starts_with(kFile)) return;
  const std::string host = launch::split_address(options.rendezvous).first;
  if (host == "0.0.0.0" || host == "::") {
    throw user_error(
        "--rendezvous={}: give the name or address by which other machines reach this one",
        options.rendezvous);
  }
}

void check(const launch::LaunchOptions& options) {
  const launch::ElasticLimits& limits = options.limits;
  const launch::Backend& backend = launch::find_launched_backend(options.backend);
  if (!backend.meets_at_rendezvous() && !options.rendezvous.empty()) {
    throw user_error("--rendezvous is for --backend={}, and this is {}",
                     launch::backend_names({launch::Bootstrap::kRendezvous}), backend.name);
  }
  check_rendezvous(options);
  if (limits.min_ranks < 1) throw user_error("--min-ranks={}: at least 1", limits.min_ranks);
  if (limits.max_restarts < 0) {
    throw user_error("--max-restarts={}: at least 0", limits.max_restarts);
  }
  if (options.regrow_after_s < 0) {
    throw user_error("--regrow-after={}: seconds, or 0 for never", options.regrow_after_s);
  }
  if (options.slots < 0 || options.slots > kMost) {
    throw user_error("--slots={}: from 1 to {} ranks of this machine", options.slots, kMost);
  }
  if (options.slots > 0 && !options.hostfile.empty()) {
    throw user_error("--slots is what this machine takes without --hostfile; give one of the two");
  }
  if (options.slots > 0 && limits.max_ranks > options.slots && options.rendezvous.empty()) {
    throw user_error(
        "--slots={} is below --max-ranks={}, and nobody can join; give "
        "--rendezvous=tcp://HOST:PORT",
        options.slots, limits.max_ranks);
  }
  const bool is_told = options.slots > 0 || !options.hostfile.empty();
  if (!is_told && !options.is_max_given) {
    throw user_error("how many ranks? say --max-ranks=N, --slots=N, or --hostfile FILE");
  }
  if (limits.max_ranks < (is_told ? 0 : 1) || limits.max_ranks > kMost * kMost) {
    throw user_error("--max-ranks={}: give a number from 1 to {}, --slots, or a --hostfile",
                     limits.max_ranks, kMost);
  }
  if (!is_told && limits.max_ranks > kMost) {
    throw user_error("--max-ranks={}: one machine takes at most {}; give --slots or a --hostfile",
                     limits.max_ranks, kMost);
  }
}

int count_slots(const std::vector<launch::Host>& hosts) {
  int slots = 0;
  for (const launch::Host& host : hosts) slots += host.slots;
  return slots;
}

// As an agent that offers ranks to another launch.
int run_join(const launch::LaunchOptions& options, const Invocation& invocation) {
  if (options.slots < 1 || options.slots > kMost) {
    throw user_error("--join={}: say how many ranks to offer, --slots=N (from 1 to {})",
                     options.join, kMost);
  }
  if (!options.join.starts_with(kFile)) {
    const std::string address =
        options.join.substr(options.join.starts_with(kTcp) ? kTcp.size() : 0);
    try {
      launch::split_address(std::string(kTcp) + address);
    } catch (const Error&) {
      throw user_error("--join={}: give HOST:PORT, or file:///DIRECTORY as the launch was given",
                       options.join);
    }
  }
  const std::string name = options.name.empty() ? launch::this_host() : options.name;
  if (!launch::is_host_name(name)) {
    throw user_error("--name={}: letters, digits, '.', '-' and '_' make a name", name);
  }
  const train::Recipe recipe(options.recipe, invocation.overrides);
  constexpr double kFindSeconds = 30;
  const double timeout_s = recipe.config().comm.timeout_s;
  launch::SignalFd signals;
  if (recipe.config().run.on_signal == "save") signals.pass_usr1_on();
  return launch::join_launch(
      {.address = options.join,
       .name = name,
       .slots = options.slots,
       .call = launch::train_call(options.recipe, invocation.overrides),
       .agreement = launch::agreement_lines(ATOLL_VERSION, recipe.settings()),
       .find_timeout_s = std::min(kFindSeconds, timeout_s),
       .leave_timeout_s = timeout_s},
      signals);
}

// Each task of an srun, or process of an engine, is called alike: the first is the launch, and the
// others join it.
void follow_scheduler(launch::LaunchOptions& options, const Invocation& invocation) {
  if (!options.join.empty()) return;
  const std::optional<launch::LaunchTask> task = launch::launch_task(
      launch::rank_environment(),
      options.hostfile.empty() ? launch::engine_environment() : launch::Environment());
  if (!task) return;
  if (options.slots == 0) options.slots = task->slots;
  if (options.slots == 0 || !launch::find_launched_backend(options.backend).meets_at_rendezvous()) {
    throw user_error(
        "{} has started {} of `atoll launch`, which together are one: say --slots=N, the ranks of "
        "each, and --backend={}",
        task->engine, task->num_tasks > 0 ? std::to_string(task->num_tasks) : "several",
        launch::backend_names({launch::Bootstrap::kRendezvous}));
  }
  launch::forget_rank_environment();  // the ranks are ours, not the scheduler's
  if (options.rendezvous.empty()) options.rendezvous = task->rendezvous;
  if (options.rendezvous.empty()) {
    throw user_error(
        "{} has started several of `atoll launch` and does not tell where the first one is; give "
        "--rendezvous=tcp://HOST:PORT of it",
        task->engine);
  }
  if (options.rendezvous.starts_with(kTcp)) {
    const train::Recipe recipe(options.recipe, invocation.overrides);
    launch::wait_for_host(launch::split_address(options.rendezvous).first,
                          recipe.config().comm.timeout_s);
  }
  if (task->is_first) {
    const int tasks = std::max(1, task->num_tasks);
    if (options.limits.max_ranks == 0) options.limits.max_ranks = options.slots * tasks;
    log::info("{} has started {} of `atoll launch`; the others join this one at {}", task->engine,
              task->num_tasks > 0 ? std::to_string(task->num_tasks) : "several",
              options.rendezvous);
    return;
  }
  options.join = options.rendezvous;
  if (options.name.empty()) options.name = task->name;
}

// What is shown of a launch.
struct ShownFlags {
  WatchFlags watch;
  MetricsFlags metrics;
  PrintFlags print;
};

int run(launch::LaunchOptions options, const ShownFlags& shown, const Invocation& invocation) {
  if (!shown.print.kind.empty()) {
    if (!options.is_min_given) options.limits.min_ranks = 0;
    return print_manifest(shown.print, options, invocation);
  }
  if (!shown.print.image.empty()) throw user_error("--image is for --print; leave it out");
  follow_scheduler(options, invocation);
  if (!options.join.empty()) {
    if (!shown.metrics.listen.empty()) {
      throw user_error("--metrics-listen belongs to the launch that --join={} joins", options.join);
    }
    if (shown.watch.is_asked()) {
      throw user_error("--watch belongs to the launch that --join={} joins", options.join);
    }
    return run_join(options, invocation);
  }
  check(options);
  const train::Recipe recipe(options.recipe, invocation.overrides);
  const WatchBeside watch(shown.watch, {recipe.config().run.dir});
  const std::vector<launch::Host> hosts = launch::read_hosts(options);
  if (options.limits.max_ranks == 0) options.limits.max_ranks = count_slots(hosts);
  options.on_lost = [&](std::int64_t step, const std::string& cause) {
    tell_rank_lost(recipe.config(), step, cause, "dmesg --ctime | tail -n 20");
  };
  const bool has_remote = std::any_of(hosts.begin(), hosts.end(),
                                      [](const launch::Host& host) { return !host.name.empty(); });
  launch::SignalFd signals;  // before any thread is made
  if (recipe.config().run.on_signal == "save") signals.pass_usr1_on();
  const bool is_in_directory = options.rendezvous.starts_with(kFile);
  launch::Generations generations(
      options.backend, launch::train_call(options.recipe, invocation.overrides),
      is_in_directory ? fmt::format("tcp://{}:0", launch::this_host()) : options.rendezvous,
      has_remote);
  launch::Agent agent(options, recipe.config(),
                      launch::agreement_lines(ATOLL_VERSION, recipe.settings()), hosts,
                      generations);
  const auto metrics = serve_metrics(shown.metrics, [&] { return to_page(agent.status()); });
  if (is_in_directory) {
    comm::open_rendezvous(options.rendezvous, 0)
        ->set(launch::address_key(), generations.rendezvous());
  }
  return agent.run(signals);
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<launch::LaunchOptions>();
  parser.add_option("recipe", options->recipe, "TOML file; docs/configuration.md lists its keys");
  const std::vector<Argument> own = {
      parser.add_option("--min-ranks", options->limits.min_ranks, "Fewest ranks to go on with (1)"),
      parser.add_option("--max-ranks", options->limits.max_ranks,
                        "Most ranks, and how many it begins with; all slots of a hostfile"),
      parser.add_option("--max-restarts", options->limits.max_restarts,
                        "How often ranks may fail before it gives up (3)"),
      parser.add_option(
          "--regrow-after", options->regrow_after_s,
          "Seconds after which lost ranks are replaced; 0: at the restart after the next"),
      parser.add_option("--backend", options->backend, launch::launched_backend_help()),
      parser.add_option("--hostfile", options->hostfile,
                        "Lines of NAME slots=N: hosts to start ranks on")};
  parser.add_option("--rendezvous", options->rendezvous,
                    "Where ranks meet, and others may join: tcp://HOST:PORT or file:///DIRECTORY");
  parser.add_option(
      "--slots", options->slots,
      "Ranks that this machine takes; all of --max-ranks, or those it offers (--join)");
  Argument join = parser.add_option(
      "--join", options->join,
      "HOST:PORT of a launch that is under way, to offer it ranks of this machine");
  parser.add_option("--name", options->name, "What it is to call this machine (its own name)");
  for (const Argument& option : own) join.excludes(option);
  const auto shown = std::make_shared<ShownFlags>();  // lives as long as the parser and the action
  add_watch_flags(parser, shown->watch);
  add_metrics_flags(parser, shown->metrics);
  add_print_flags(parser, shown->print);
  return [options, shown, min_ranks = own[0], max_ranks = own[1]](const Invocation& invocation) {
    options->is_min_given = min_ranks.count() > 0;
    options->is_max_given = max_ranks.count() > 0;
    return run(*options, *shown, invocation);
  };
}

}  // namespace

Command launch_command() {
  return {.name = "launch",
          .summary = "Train on several ranks, and go on with those that are left when some die.",
          .example =
              "  atoll launch --min-ranks=2 --max-ranks=4 --max-restarts=10 run.toml\n"
              "  atoll launch --slots=2 --max-ranks=4 --rendezvous=tcp://alpha:29500 run.toml\n"
              "  atoll launch --join=alpha:29500 --slots=2 run.toml    # on another machine\n"
              "  atoll launch run.toml --max-ranks=8 --slots=2 --print=slurm >run.sh",
          .stray = "one recipe is all that it takes; texts are given as --data.text=a.txt,b.txt",
          .takes_overrides = true,
          .add = add,
          .memory_advice = train::kTrainingMemoryAdvice};
}

}  // namespace atl::cli
