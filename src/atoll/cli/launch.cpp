#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "atoll/cli/commands.h"
#include "atoll/cli/launch_agent.h"
#include "atoll/cli/launch_generation.h"
#include "atoll/cli/recipe.h"

namespace atl::cli {

namespace {

void check(const LaunchOptions& options) {
  const ElasticLimits& limits = options.limits;
  if (options.backend != "gloo" && options.backend != "mpi") {
    throw user_error("--backend={}: `atoll launch` starts processes, with gloo or mpi",
                     options.backend);
  }
  if (options.backend == "mpi" && !options.rendezvous.empty()) {
    throw user_error("--rendezvous is for --backend=gloo, and this is mpi");
  }
  if (limits.min_ranks < 1) throw user_error("--min-ranks={}: at least 1", limits.min_ranks);
  if (limits.max_restarts < 0) {
    throw user_error("--max-restarts={}: at least 0", limits.max_restarts);
  }
  if (options.regrow_after_s < 0) {
    throw user_error("--regrow-after={}: seconds, or 0 for never", options.regrow_after_s);
  }
  constexpr int kMost = 1024;  // on one host
  if (options.hostfile.empty() && (limits.max_ranks < 1 || limits.max_ranks > kMost)) {
    throw user_error("--max-ranks={}: give a number from 1 to {}, or a --hostfile",
                     limits.max_ranks, kMost);
  }
}

int count_slots(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

int run(LaunchOptions options, const Invocation& invocation) {
  check(options);
  const Recipe recipe(options.recipe, invocation.overrides);
  const std::vector<Host> hosts = read_hosts(options);
  if (options.limits.max_ranks == 0) options.limits.max_ranks = count_slots(hosts);
  const bool has_remote =
      std::any_of(hosts.begin(), hosts.end(), [](const Host& host) { return !host.name.empty(); });
  SignalTap signals;  // before any thread is made
  Generations generations(options.backend, train_call(options.recipe, invocation.overrides),
                          options.rendezvous, has_remote);
  return Agent(options, recipe.config(), hosts, generations).run(signals);
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<LaunchOptions>();
  app.add_option("recipe", options->recipe, "TOML file; docs/configuration.md lists its keys");
  app.add_option("--min-ranks", options->limits.min_ranks, "Fewest ranks to go on with (1)");
  app.add_option("--max-ranks", options->limits.max_ranks,
                 "Most ranks, and how many it begins with; all slots of a hostfile");
  app.add_option("--max-restarts", options->limits.max_restarts,
                 "How often ranks may fail before it gives up (3)");
  app.add_option("--regrow-after", options->regrow_after_s,
                 "Seconds after which lost ranks are replaced; 0: at the restart after the next");
  app.add_option("--backend", options->backend, "gloo (the default) or mpi");
  app.add_option("--hostfile", options->hostfile, "Lines of NAME slots=N: hosts to start ranks on");
  app.add_option("--rendezvous", options->rendezvous, "Where ranks meet: tcp://HOST:PORT");
  return [options](const Invocation& invocation) { return run(*options, invocation); };
}

}  // namespace

Command launch_command() {
  return {.name = "launch",
          .summary = "Train on several ranks, and go on with those that are left when some die.",
          .example = "  atoll launch --min-ranks=2 --max-ranks=4 --max-restarts=10 run.toml",
          .takes_overrides = true,
          .add = add};
}

}  // namespace atl::cli
