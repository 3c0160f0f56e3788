#include "atoll/launch/rank_main.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/stop_signals.h"
#include "atoll/base/threads/thread_pool.h"
#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/engines/pmi.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

// mpirun gives its ranks one second after SIGTERM, but passes these on as they are.
extern "C" void stop_for_mpirun(int number) {
  ::kill(::getpid(), number == SIGUSR2 ? SIGINT : SIGTERM);
}

// ssh passes no signals on and does not end a process whose connection is lost. So signals come as
// lines of standard input, and its end says that the connection is lost. The thread lives as long
// as the process.
void obey_input() {
  std::thread([] {
    for (std::string line; std::getline(std::cin, line);) {
      for (const int signal : kStopSignals) {
        if (line == fmt::format("signal {}", signal)) ::kill(::getpid(), signal);
      }
    }
    ::kill(::getpid(), SIGKILL);
  }).detach();
}

std::unique_ptr<comm::World> open_world(const Backend& backend, const RankPlan& plan,
                                        int generation, const comm::WorldOptions& options) {
  std::unique_ptr<comm::World> world = backend.open({.rank = plan.rank,
                                                     .size = plan.ranks,
                                                     .rendezvous = plan.rendezvous,
                                                     .generation = generation},
                                                    options);
  const bool is_told_size = backend.is_started_by_mpirun() && plan.ranks != 0;
  if (is_told_size && world->size() != plan.ranks) {
    throw user_error(
        "MPI knows of {} ranks, but {} says {}: atoll was started by another MPI's "
        "launcher than its own; use Open MPI's mpirun, or srun --mpi=pmix",
        world->size(), plan.origin, plan.ranks);
  }
  return world;
}

// mpirun sends these, which end a process that does not heed them.
void heed_mpirun() {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    // With run.on_signal = save SIGUSR1 is another wish.
    if (now.sa_handler == SIG_DFL) std::signal(signal, stop_for_mpirun);
  }
}

// The process that starts ranks serves the rendezvous. Where ranks are started by hand, rank 0
// does.
std::unique_ptr<comm::RendezvousServer> serve_by_hand(const RankPlan& plan,
                                                      const RankOptions& options) {
  const bool serves =
      plan.rank == 0 && options.report_fd < 0 && plan.rendezvous.starts_with("tcp:");
  if (!serves) return nullptr;
  const auto [host, port] = split_address(plan.rendezvous);
  return std::make_unique<comm::RendezvousServer>(host, port);
}

// Where ranks meet that know nothing but their PMI: rank 0 serves the rendezvous, and the PMI tells
// the others where.
std::unique_ptr<comm::RendezvousServer> meet_by_pmi(RankPlan& plan, double timeout_s) {
  std::unique_ptr<comm::RendezvousServer> server;
  if (plan.rank == 0) server = std::make_unique<comm::RendezvousServer>(this_host(), 0);
  plan.rendezvous = share_by_pmi(plan.rank == 0, server ? server->address() : "", timeout_s);
  return server;
}

// Gives all ranks the lines of rank 0.
std::vector<std::string> broadcast_lines(comm::World& world,
                                         const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  auto size = static_cast<std::int64_t>(text.size());
  world.all().broadcast(Tensor(&size, {Dtype::kI64, {1}}), 0);
  text.resize(static_cast<std::size_t>(size));
  world.all().broadcast(Tensor(text.data(), {Dtype::kU8, {size}}), 0);
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace

int run_watched(const RankOptions& options, int rank,
                const std::function<int(RankReporter& reporter)>& body) {
  if (options.watches_input) obey_input();
  if (rank > 0) log::set_level(log::Level::kWarning);
  RankReporter reporter(options.report_fd, rank);
  reporter.begin();
  try {
    return body(reporter);
  } catch (const std::exception& error) {
    if (!reporter.enabled()) throw;
    return reporter.error(error);
  }
}

int run_rank(const RankPlan& told, const RankOptions& options,
             const comm::WorldOptions& world_options,
             const std::function<int(comm::World& world, RankReporter& reporter)>& body) {
  RankPlan plan = told;
  if (options.watches_input) obey_input();
  if (plan.rank > 0) log::set_level(log::Level::kWarning);
  const Backend& backend = find_backend(plan.backend);
  if (backend.is_started_by_mpirun()) heed_mpirun();  // before it is told that this rank is there
  RankReporter reporter(options.report_fd, plan.rank);
  reporter.begin();
  std::unique_ptr<comm::RendezvousServer> server;
  std::unique_ptr<comm::World> world;
  try {
    if (plan.rendezvous == kPmiRendezvous) {
      server = meet_by_pmi(plan, world_options.timeout_s);
    } else if (backend.meets_at_rendezvous()) {
      server = serve_by_hand(plan, options);
    }
    world = open_world(backend, plan, options.generation, world_options);
    return body(*world, reporter);
  } catch (const std::exception& error) {
    const bool tells = !world || world->reports();
    if (world) world->abort(error.what());
    if (tells && !reporter.enabled()) throw;
    RankReporter nobody(-1, plan.rank);
    return (tells ? reporter : nobody).error(error);
  }
}

namespace {

// The arithmetic of bf16 products and of attention changes bits. With `auto` rank 0 decides for all
// ranks.
void add_arithmetic(const Settings& settings, std::vector<std::string>& lines) {
  std::string dtype, wanted, attention;
  for (const auto& [key, value] : settings.key_values()) {
    if (key == "train.dtype") dtype = value;
    if (key == "device.bf16") wanted = value;
    if (key == "device.attention") attention = value;
  }
  if (dtype != "\"bf16\"") return;
  lines.push_back("device.bf16 = " + wanted);
  if (!attention.empty()) lines.push_back("device.attention = " + attention);
}

}  // namespace

void run_rank_threads(const RankPlan& plan, const comm::WorldOptions& world_options,
                      const std::function<void(comm::World& world)>& body) {
  find_backend(plan.backend).run(plan.ranks, world_options, body);
}

std::vector<std::string> agreement_lines(const std::string& version, const Settings& settings) {
  std::vector<std::string> lines = {"the version = " + version};
  for (const Setting& setting : settings.all()) {
    if (setting.scope != Scope::kHost) lines.push_back(setting.key + " = " + setting.toml());
  }
  add_arithmetic(settings, lines);
  return lines;
}

void check_agreement(const std::vector<std::string>& mine, const std::vector<std::string>& first,
                     const std::string& who) {
  const auto [here, there] = std::mismatch(mine.begin(), mine.end(), first.begin(), first.end());
  if (here == mine.end() && there == first.end()) return;
  throw user_error(
      "{} has `{}` and rank 0 has `{}`; start all ranks with the same program and settings", who,
      here == mine.end() ? "nothing more" : *here, there == first.end() ? "nothing more" : *there);
}

void agree_on(comm::World& world, const std::vector<std::string>& mine) {
  const std::vector<std::string> first = broadcast_lines(world, mine);
  world.agree([&] { check_agreement(mine, first, fmt::format("rank {}", world.rank())); });
}

void agree_on_settings(comm::World& world, const std::string& version, const Settings& settings) {
  agree_on(world, agreement_lines(version, settings));
}

int fair_threads(comm::World& world) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  Hasher hasher;
  hasher.update(&cpus, sizeof cpus);
  const std::string host = this_host() + read_file("/proc/sys/kernel/random/boot_id");
  hasher.update(host.data(), host.size());
  const Hash128 mine = hasher.digest();
  std::vector<Hash128> all(static_cast<std::size_t>(world.size()));
  all[static_cast<std::size_t>(world.rank())] = mine;
  constexpr std::int64_t kWords = sizeof(Hash128) / sizeof(std::int64_t);
  std::vector<std::int64_t> parts;
  for (std::int64_t rank = 0; rank <= world.size(); ++rank) parts.push_back(kWords * rank);
  world.all().all_gather(Tensor(all.data(), {Dtype::kI64, {parts.back()}}), parts);
  const auto sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
  return std::max(1, available_cpus() / sharing);
}

}  // namespace atl::launch
