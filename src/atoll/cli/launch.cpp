#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/launch_generation.h"
#include "atoll/cli/launch_probe.h"
#include "atoll/cli/launch_roster.h"
#include "atoll/cli/recipe.h"
#include "atoll/train/options.h"

namespace atl::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string recipe;
  ElasticLimits limits = {.min_ranks = 1, .max_ranks = 0, .max_restarts = 3};
  std::string backend = "gloo";
  std::string hostfile;
  std::string rendezvous;
  double regrow_after_s = 0;
};

void check(const Options& options) {
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

// The empty name is this machine's.
std::vector<Host> read_hosts(const Options& options) {
  if (options.hostfile.empty()) return {{.name = "", .slots = options.limits.max_ranks}};
  std::vector<Host> hosts = read_hostfile(options.hostfile);
  for (Host& host : hosts) {
    if (is_this_host(host.name)) host.name.clear();
  }
  return hosts;
}

int count_slots(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

// Starts generation after generation until the run is done or cannot go on.
class Agent {
 public:
  Agent(const Options& options, const train::TrainConfig& config, const std::vector<Host>& hosts,
        Generations& generations)
      : options_(options),
        config_(config),
        roster_(hosts, options.limits),
        generations_(generations) {}

  int run(SignalTap& signals) {
    std::optional<Verdict> before;  // how the last generation failed
    for (;;) {
      std::vector<std::string> hosts = roster_.next();
      if (hosts.empty()) {
        throw make_error(ErrorKind::kPeer, "{}; fewer than --min-ranks={} are left",
                         before ? before->cause : "places for ranks are gone",
                         options_.limits.min_ranks);
      }
      hosts.resize(static_cast<std::size_t>(fitting(static_cast<int>(hosts.size()))));
      if (before) announce(*before, hosts.size());
      const IslandEnd end = run_generation(hosts, signals);
      Verdict verdict = judge(end);
      before.reset();
      if (verdict.kind == Verdict::Kind::kStopped && end.was_wanted) {
        log::info("starting again from the checkpoint with more ranks");
      } else if (verdict.kind == Verdict::Kind::kFailed &&
                 restarts_ < options_.limits.max_restarts) {
        ++restarts_;
        roster_.lose(verdict);
        before = std::move(verdict);
      } else {
        return give_up(verdict);
      }
      look_at_hostfile();
    }
  }

 private:
  // The most of `num_ranks` that the settings allow: dp.shard must divide them, for one.
  int fitting(int num_ranks) const {
    for (int fewer = num_ranks;; --fewer) {
      try {
        train::data_parallel_options(config_, fewer, 0);
        return fewer;
      } catch (const Error&) {
        if (fewer == options_.limits.min_ranks) throw;
      }
    }
  }

  IslandEnd run_generation(const std::vector<std::string>& hosts, SignalTap& signals) {
    IslandOptions watch;
    if (options_.regrow_after_s > 0) {
      grows_at_ = Clock::now() + regrow_after();
      watch.wants_to_stop = [this] { return wants_to_grow(); };
    }
    return generations_.run(hosts, watch, signals);
  }

  void announce(const Verdict& verdict, std::size_t num_ranks) const {
    log::warning("{}; going on from the newest checkpoint with {} (restart {} of {})",
                 verdict.cause, num_ranks == 1 ? "1 rank" : fmt::format("{} ranks", num_ranks),
                 restarts_, options_.limits.max_restarts);
  }

  int give_up(Verdict verdict) const {
    if (verdict.kind == Verdict::Kind::kFailed && options_.limits.max_restarts > 0) {
      verdict.cause += fmt::format("; all restarts are used up (--max-restarts={})",
                                   options_.limits.max_restarts);
    }
    return finish(verdict);
  }

  Clock::duration regrow_after() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(options_.regrow_after_s));
  }

  // Asked while ranks train, so it must not wait: hosts are called in the background.
  bool wants_to_grow() {
    if (probe_.done()) roster_.return_hosts(probe_.take());
    if (Clock::now() < grows_at_) return false;
    grows_at_ = Clock::now() + regrow_after();
    look_at_hostfile();
    if (!roster_.gone().empty()) probe_.start(roster_.gone());
    return roster_.can_grow();
  }

  // A file that is being edited may be damaged for a moment; the places stay as they were then.
  void look_at_hostfile() {
    if (options_.hostfile.empty()) return;
    try {
      roster_.update(read_hosts(options_));
    } catch (const Error& error) {
      log::warning("{}; going on with the hosts as they were", error.what());
    }
  }

  const Options& options_;
  const train::TrainConfig& config_;
  Roster roster_;
  Generations& generations_;
  HostProbe probe_;
  int restarts_ = 0;
  Clock::time_point grows_at_;
};

int run(Options options, const Invocation& invocation) {
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
  const auto options = std::make_shared<Options>();
  app.add_option("recipe", options->recipe, "TOML file; docs/configuration.md lists its keys");
  app.add_option("--min-ranks", options->limits.min_ranks, "Fewest ranks to go on with (1)");
  app.add_option("--max-ranks", options->limits.max_ranks,
                 "Most ranks, and how many it begins with; all slots of a hostfile");
  app.add_option("--max-restarts", options->limits.max_restarts,
                 "How often ranks may fail before it gives up (3)");
  app.add_option("--regrow-after", options->regrow_after_s,
                 "Seconds after which lost ranks are replaced, at a checkpoint; 0: at the restart "
                 "after the next");
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
