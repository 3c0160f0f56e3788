#include "atoll/launch/ranks.h"

#include <charconv>
#include <cstdlib>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/launch/backend.h"
#include "atoll/launch/engines/slurm.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "PMI_RANK",
                                      "PMI_SIZE",
                                      "PMI_FD",
                                      "PMIX_RANK",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_ID",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_JOB_ID",
                                      "SLURM_JOB_NUM_NODES",
                                      "SLURM_JOB_NODELIST",
                                      "SLURM_STEP_NODELIST"};
// Of these each task has its own, so what is called in a shell of a task inherits them.
constexpr const char* kTaskVariables[] = {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_NODELIST"};

// More than any island has; keeps a typing error from starting a million processes.
constexpr std::int64_t kMostRanks = 65536;

// A launcher, as the environment variables show it.
struct Launcher {
  std::string name;                          // "mpirun"
  Bootstrap bootstrap = Bootstrap::kMpirun;  // of its ranks, unless flags say another
  bool has_pmi = true;                       // an MPI may find its ranks
  std::string rank_variable, size_variable;
  int rank = 0;
  int size = 0;  // 0: unknown
};

std::optional<std::string> look_up(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

int number_of(const Environment& environment, const std::string& name, const std::string& partner) {
  const std::optional<std::string> text = look_up(environment, name);
  if (!text) {
    throw user_error("the environment has {} but no {}; start atoll by mpirun or srun, or unset it",
                     partner, name);
  }
  int value = -1;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stopped != end || value < 0 || value > kMostRanks) {
    throw user_error("the environment variable {} is '{}', which is no number of ranks; unset it",
                     name, *text);
  }
  return value;
}

Launcher launched_by(const Environment& environment, Launcher launcher) {
  launcher.rank = number_of(environment, launcher.rank_variable, launcher.size_variable);
  if (launcher.size_variable.empty()) return launcher;
  launcher.size = number_of(environment, launcher.size_variable, launcher.rank_variable);
  if (launcher.rank >= launcher.size) {
    throw user_error("the environment says rank {} ({}) of {} ({}); unset both, or start it anew",
                     launcher.rank, launcher.rank_variable, launcher.size, launcher.size_variable);
  }
  return launcher;
}

// Slurm sets SLURM_NTASKS and SLURM_PROCID for a whole batch script too; only what srun starts has
// a step.
std::string slurm_size_variable(const Environment& environment) {
  if (look_up(environment, "SLURM_STEP_NUM_TASKS")) return "SLURM_STEP_NUM_TASKS";
  const bool in_step = look_up(environment, "SLURM_STEP_ID").has_value();
  return in_step && look_up(environment, "SLURM_NTASKS") ? "SLURM_NTASKS" : "";
}

std::optional<Launcher> find_launcher(const Environment& environment) {
  const auto has = [&](const char* name) { return look_up(environment, name).has_value(); };
  if (has("OMPI_COMM_WORLD_RANK") || has("OMPI_COMM_WORLD_SIZE")) {
    return launched_by(environment, {.name = "mpirun",
                                     .rank_variable = "OMPI_COMM_WORLD_RANK",
                                     .size_variable = "OMPI_COMM_WORLD_SIZE"});
  }
  if (has("PMI_RANK") || has("PMI_SIZE")) {
    // MPICH's mpiexec and srun --mpi=pmi2 speak protocols that our MPI may not know, which then
    // takes each rank for the only one.
    const bool meets_without = has("PMI_FD") || !slurm_size_variable(environment).empty();
    const bool has_pmix = has("PMIX_RANK");
    return launched_by(
        environment,
        {.name = "a PMI",
         .bootstrap = meets_without && !has_pmix ? Bootstrap::kRendezvous : Bootstrap::kMpirun,
         .rank_variable = "PMI_RANK",
         .size_variable = "PMI_SIZE"});
  }
  const std::string slurm_size = slurm_size_variable(environment);
  if (has("PMIX_RANK")) {
    return launched_by(
        environment, {.name = "a PMIx", .rank_variable = "PMIX_RANK", .size_variable = slurm_size});
  }
  if (has("SLURM_PROCID") && !slurm_size.empty()) {
    return launched_by(environment, {.name = "srun",
                                     .bootstrap = Bootstrap::kRendezvous,
                                     .has_pmi = false,
                                     .rank_variable = "SLURM_PROCID",
                                     .size_variable = slurm_size});
  }
  return std::nullopt;
}

// Every task of a step computes the same address. The port is picked from the job and step, so that
// two steps on a node meet at different ones.
std::string slurm_rendezvous(const Environment& environment) {
  std::optional<std::string> nodes = look_up(environment, "SLURM_STEP_NODELIST");
  if (!nodes) nodes = look_up(environment, "SLURM_JOB_NODELIST");
  if (!nodes) {
    throw user_error(
        "srun started this program, but SLURM_JOB_NODELIST is not set, so the first node is not "
        "known; give --rendezvous=tcp://HOST:PORT");
  }
  std::uint64_t number = 0;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    for (const char c : look_up(environment, name).value_or("")) {
      number = number * 31 + static_cast<unsigned char>(c);
    }
  }
  constexpr int kFirstPort = 20000, kPorts = 10000;  // below what Linux gives to clients
  return fmt::format("tcp://{}:{}", first_slurm_host(*nodes), kFirstPort + number % kPorts);
}

// What the flags name, or else the default of those that come together so.
const Backend& backend_of(const RankFlags& flags, Bootstrap bootstrap) {
  return flags.backend.empty() ? default_backend(bootstrap) : find_backend(flags.backend);
}

void check_count(const char* flag, const std::optional<std::int64_t>& count) {
  if (count && (*count < 1 || *count > kMostRanks)) {
    throw user_error("{} {}: a run has from 1 to {} ranks", flag, *count, kMostRanks);
  }
}

void check_rendezvous(const std::string& address) {
  if (address.empty()) return;
  const std::size_t colon = address.rfind(':');
  if (address.starts_with("tcp://")) {
    const std::string port = address.substr(colon + 1);
    std::uint16_t number = 0;
    const auto [stopped, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    const bool whole = error == std::errc() && stopped == port.data() + port.size();
    if (whole && colon > std::string_view("tcp://").size()) return;
  } else if (address.starts_with("file:///") && address.size() > 8) {
    return;
  }
  throw user_error("--rendezvous={}: an address is tcp://HOST:PORT or file:///DIRECTORY", address);
}

// A rank that mpirun, srun or their like started.
RankPlan plan_launched(const RankFlags& flags, const Environment& environment,
                       const Launcher& launcher) {
  const std::string& size_name = launcher.size_variable;
  const auto check_size = [&](const char* flag, const std::optional<std::int64_t>& count) {
    if (!count || launcher.size == 0 || *count == launcher.size) return;
    throw user_error("{} {}, but {} has started {} ranks ({}={}); leave {} out", flag, *count,
                     launcher.name, launcher.size, size_name, launcher.size, flag);
  };
  check_size("-n", flags.num_ranks);
  check_size("--ranks", flags.ranks);
  if (flags.rank && *flags.rank != launcher.rank) {
    throw user_error(
        "--rank {}, but this is rank {} of what {} has started ({}={}); leave --rank "
        "out",
        *flags.rank, launcher.rank, launcher.name, launcher.rank_variable, launcher.rank);
  }
  if (!flags.hostfile.empty()) {
    throw user_error(
        "--hostfile is for whoever starts the ranks, and {} has done so already ({} "
        "is set); leave it out",
        launcher.name, launcher.rank_variable);
  }
  const Backend& backend = backend_of(flags, launcher.bootstrap);
  RankPlan plan = {.role = Role::kRank,
                   .backend = backend.name,
                   .ranks = launcher.size,
                   .rank = launcher.rank,
                   .origin = size_name.empty() ? launcher.rank_variable : size_name};
  if (backend.is_threads()) {
    throw user_error(
        "--backend={} makes ranks in one process, but {} has started {} "
        "processes ({} is set); use --backend={}",
        backend.name, launcher.name, launcher.size, plan.origin,
        default_backend(launcher.bootstrap).name);
  }
  if (backend.is_started_by_mpirun() && !launcher.has_pmi) {
    throw user_error(
        "--backend={} needs a PMI, and srun has started this program without one; "
        "use `srun --mpi=pmix`, or --backend={}",
        backend.name, default_backend(Bootstrap::kRendezvous).name);
  }
  if (backend.meets_at_rendezvous()) {
    plan.rendezvous = flags.rendezvous;
    const bool has_step = !slurm_size_variable(environment).empty();
    if (plan.rendezvous.empty() && launcher.name != "mpirun" && has_step) {
      plan.rendezvous = slurm_rendezvous(environment);
    } else if (plan.rendezvous.empty() && look_up(environment, "PMI_FD")) {
      plan.rendezvous = kPmiRendezvous;
    }
    if (plan.rendezvous.empty() || launcher.size == 0) {
      throw user_error(
          "--backend={} under {} needs an address at which its ranks meet: give "
          "--rendezvous=tcp://HOST:PORT or file:///DIRECTORY, or use --backend={}",
          backend.name, launcher.name, default_backend(Bootstrap::kMpirun).name);
    }
  } else if (!flags.rendezvous.empty()) {
    throw user_error(
        "--rendezvous is for --backend={}; ranks that {} has started find each "
        "other by it",
        default_backend(Bootstrap::kRendezvous).name, launcher.name);
  }
  return plan;
}

// One rank of those that somebody starts by hand.
RankPlan plan_by_hand(const RankFlags& flags) {
  if (flags.num_ranks) {
    throw user_error(
        "-n {} starts ranks and --rank {} is one of them; give -n alone, or --rank "
        "with --ranks",
        *flags.num_ranks, *flags.rank);
  }
  if (!flags.ranks) throw user_error("--rank {} of how many? give --ranks too", *flags.rank);
  if (*flags.rank < 0 || *flags.rank >= *flags.ranks) {
    throw user_error("--rank {} of --ranks {}: ranks are counted from 0 to {}", *flags.rank,
                     *flags.ranks, *flags.ranks - 1);
  }
  const Backend& backend = backend_of(flags, Bootstrap::kRendezvous);
  if (!backend.meets_at_rendezvous()) {
    throw user_error(
        "--rank is for --backend={}; {} {}", backend_names({Bootstrap::kRendezvous}),
        backend.is_threads() ? "-n alone starts those of" : "mpirun gives ranks to those of",
        backend.name);
  }
  if (!flags.hostfile.empty()) {
    throw user_error("--hostfile starts ranks and --rank {} is one of them; give one of the two",
                     *flags.rank);
  }
  if (*flags.ranks == 1) return {.origin = "--ranks"};
  if (flags.rendezvous.empty()) {
    throw user_error(
        "--rank {} must know where the ranks meet: give "
        "--rendezvous=tcp://HOST:PORT (rank 0's host) or file:///DIRECTORY (one that "
        "all see)",
        *flags.rank);
  }
  return {.role = Role::kRank,
          .backend = backend.name,
          .ranks = static_cast<int>(*flags.ranks),
          .rank = static_cast<int>(*flags.rank),
          .rendezvous = flags.rendezvous,
          .origin = "--ranks"};
}

// The program that people call: all ranks are still to be started.
RankPlan plan_first(const RankFlags& flags) {
  if (flags.ranks) {
    throw user_error(
        "--ranks {} is for one that is started by hand, with --rank; -n {} starts "
        "them all",
        *flags.ranks, *flags.ranks);
  }
  const Backend& backend =
      backend_of(flags, flags.hostfile.empty() ? Bootstrap::kThreads : Bootstrap::kRendezvous);
  if (!flags.hostfile.empty() && !backend.spans_hosts) {
    throw user_error("--backend={} makes ranks {}, so it takes no --hostfile; use {} or {}",
                     backend.name, backend.is_threads() ? "in one process" : "on one host",
                     default_backend(Bootstrap::kRendezvous).name,
                     default_backend(Bootstrap::kMpirun).name);
  }
  if (!flags.rendezvous.empty() && !backend.meets_at_rendezvous()) {
    throw user_error("--rendezvous is for --backend={}, and this is {}",
                     backend_names({Bootstrap::kRendezvous}), backend.name);
  }
  if (flags.rendezvous.starts_with("file:")) {
    throw user_error(
        "--rendezvous={}: whoever starts ranks serves an address to them; give "
        "tcp://HOST:PORT, or leave it out",
        flags.rendezvous);
  }
  const bool all_slots = !flags.hostfile.empty() && !flags.num_ranks;
  const int ranks = all_slots ? 0 : static_cast<int>(flags.num_ranks.value_or(1));
  if (ranks == 1 && flags.hostfile.empty()) return {.origin = flags.num_ranks ? "-n" : ""};
  return {.role = backend.is_threads() ? Role::kThreads : Role::kParent,
          .backend = backend.name,
          .ranks = ranks,
          .rendezvous = flags.rendezvous,
          .hostfile = flags.hostfile,
          .origin = all_slots ? "--hostfile" : "-n"};
}

// "torchrun has started this beside others (RANK=1, WORLD_SIZE=4)".
std::string started_by(const EngineTask& task) {
  return fmt::format("{} has started this beside others ({})", task.engine, task.variables);
}

// How many ranks there are of all processes of an engine, `each` of every process.
int count_ranks(const RankFlags& flags, const EngineTask& task, int each) {
  if (task.count == 0 && !flags.ranks) {
    throw user_error("{}, and does not tell how many there are; give --ranks=N, the same to all",
                     started_by(task));
  }
  const std::int64_t ranks =
      task.count == 0 ? *flags.ranks : static_cast<std::int64_t>(task.count) * each;
  if (flags.ranks && *flags.ranks != ranks) {
    throw user_error("--ranks {}, but {}: {} ranks; leave --ranks out", *flags.ranks,
                     started_by(task), ranks);
  }
  if (ranks % each != 0) {
    throw user_error("--ranks {} are no multiple of -n {}, the ranks of each process", ranks, each);
  }
  if (task.index >= ranks / each) {
    throw user_error("{}, which is one too many for {} ranks, {} a process; start all of them anew",
                     started_by(task), ranks, each);
  }
  check_count("--ranks", ranks);
  return static_cast<int>(ranks);
}

}  // namespace

std::span<const char* const> rank_variables() {
  return kVariables;
}

Environment rank_environment() {
  Environment environment;
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  if (!is_in_shell_of_task()) return environment;
  if (const auto tasks = look_up(environment, "SLURM_STEP_NUM_TASKS")) {
    environment["SLURM_NTASKS"] = *tasks;
  }
  for (const char* name : kTaskVariables) environment.erase(name);
  return environment;
}

std::string slurm_advice(const Environment& environment) {
  if (find_launcher(environment) || !look_up(environment, "SLURM_JOB_ID")) return "";
  std::vector<std::string> several;
  for (const auto& [name, what] :
       {std::pair("SLURM_NTASKS", "tasks"), std::pair("SLURM_JOB_NUM_NODES", "nodes")}) {
    const std::string count = look_up(environment, name).value_or("1");
    if (count != "1") several.push_back(fmt::format("{} {} ({})", count, what, name));
  }
  if (several.empty()) return "";
  return fmt::format(
      "Slurm's job has {}, and one rank trains, here; `srun atoll train` instead of "
      "`atoll train` starts one for each task",
      fmt::join(several, " on "));
}

bool is_launched(const Environment& environment) {
  const std::optional<Launcher> launcher = find_launcher(environment);
  return launcher && launcher->size != 1;
}

RankPlan plan_engine_task(const RankFlags& flags, const EngineTask& task) {
  if (!flags.backend.empty()) find_backend(flags.backend);
  check_count("-n", flags.num_ranks);
  check_rendezvous(flags.rendezvous);
  if (task.is_rank && flags.num_ranks && *flags.num_ranks != task.count) {
    throw user_error(
        "-n {}, but {}: each is one rank; leave -n out, or give --rank=0 --ranks=1 where each is "
        "to train by itself",
        *flags.num_ranks, started_by(task));
  }
  const int each = task.is_rank ? 1 : static_cast<int>(flags.num_ranks.value_or(task.ranks_each));
  const int ranks = count_ranks(flags, task, each);
  if (task.count == 1) {
    RankFlags alone = flags;
    alone.ranks.reset();
    alone.num_ranks = each;
    return plan_first(alone);
  }
  if (ranks == 1) return {.origin = "--ranks"};
  const Backend& backend = backend_of(flags, Bootstrap::kRendezvous);
  if (!backend.meets_at_rendezvous()) {
    throw user_error("--backend={} {}, but {}; use --backend={}", backend.name,
                     backend.is_threads() ? "makes ranks in one process" : "needs mpirun",
                     started_by(task), backend_names({Bootstrap::kRendezvous}));
  }
  RankPlan plan = {.role = each == 1 ? Role::kRank : Role::kParent,
                   .backend = backend.name,
                   .ranks = ranks,
                   .rank = task.index * each,
                   .rendezvous = flags.rendezvous.empty() ? task.rendezvous : flags.rendezvous,
                   .here = each == 1 ? 0 : each,
                   .origin = task.variables,
                   .engine = task.engine};
  if (plan.rendezvous.empty()) {
    throw user_error(
        "{}, and does not tell where the first one is; give --rendezvous=tcp://HOST:PORT of it",
        started_by(task));
  }
  if (plan.here > 0 && !plan.rendezvous.starts_with("tcp://")) {
    throw user_error("--rendezvous={}: with several ranks on each machine give tcp://HOST:PORT",
                     plan.rendezvous);
  }
  return plan;
}

RankPlan plan_ranks(const RankFlags& flags, const Environment& environment) {
  if (!flags.backend.empty()) find_backend(flags.backend);
  check_count("-n", flags.num_ranks);
  check_count("--ranks", flags.ranks);
  check_rendezvous(flags.rendezvous);
  const std::optional<Launcher> launcher = find_launcher(environment);
  if (launcher && launcher->size != 1) return plan_launched(flags, environment, *launcher);
  return flags.rank ? plan_by_hand(flags) : plan_first(flags);
}

std::optional<LaunchTask> launch_task(const Environment& environment, const Environment& engine) {
  const std::string size = slurm_size_variable(environment);
  if (look_up(environment, "SLURM_PROCID") && !size.empty()) {
    const Launcher srun = launched_by(
        environment, {.name = "srun", .rank_variable = "SLURM_PROCID", .size_variable = size});
    if (srun.size == 1) return std::nullopt;
    return LaunchTask{.engine = "srun",
                      .is_first = srun.rank == 0,
                      .rendezvous = slurm_rendezvous(environment),
                      .name = fmt::format("{}-{}", this_host(), srun.rank),
                      .num_tasks = srun.size};
  }
  const std::optional<Launcher> launcher = find_launcher(environment);
  if (launcher && launcher->size != 1) {
    throw user_error(
        "{} has started this ({} is set), and `atoll launch` starts ranks itself; call it once, or "
        "start `atoll train` so",
        launcher->name, launcher->rank_variable);
  }
  const std::optional<EngineTask> task = engine_task(engine, /*is_counted=*/true);
  if (!task) return std::nullopt;
  if (task->is_rank) {
    throw user_error(
        "{}, and `atoll launch` starts ranks itself; call it once, or start `atoll train` so",
        started_by(*task));
  }
  return LaunchTask{.engine = task->engine,
                    .is_first = task->index == 0,
                    .rendezvous = task->rendezvous,
                    .name = fmt::format("{}-{}", this_host(), task->index),
                    .num_tasks = task->count,
                    .slots = task->ranks_each};
}

}  // namespace atl::launch
