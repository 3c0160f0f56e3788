#include "atoll/launch/foreign_launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

// Where ranks meet when the launcher names no port: what torchrun takes.
constexpr int kPort = 29500;

// Names of variables; nullptr: there is none.
struct Engine {
  const char* name;
  const char* rank;
  const char* count;
  const char* address = nullptr;  // of the first process; a list begins with it
  const char* port = nullptr;
  int first = 1;  // the least rank that shows that there are several, where `count` does not
};

// From the innermost to the outermost: each may run inside the next.
constexpr Engine kEngines[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .count = "WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT"},
    {.name = "Kubeflow Trainer",
     .rank = "PET_NODE_RANK",
     .count = "PET_NNODES",
     .address = "PET_MASTER_ADDR",
     .port = "PET_MASTER_PORT"},
    {.name = "LeaderWorkerSet",
     .rank = "LWS_WORKER_INDEX",
     .count = "LWS_GROUP_SIZE",
     .address = "LWS_LEADER_ADDRESS"},
    {.name = "SkyPilot",
     .rank = "SKYPILOT_NODE_RANK",
     .count = "SKYPILOT_NUM_NODES",
     .address = "SKYPILOT_NODE_IPS"},
    {.name = "dstack",
     .rank = "DSTACK_NODE_RANK",
     .count = "DSTACK_NODES_NUM",
     .address = "DSTACK_MASTER_NODE_IP"},
    {.name = "AWS Batch",
     .rank = "AWS_BATCH_JOB_NODE_INDEX",
     .count = "AWS_BATCH_JOB_NUM_NODES",
     .address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"},
    {.name = "a Kubernetes Job", .rank = "JOB_COMPLETION_INDEX", .count = nullptr}};

// Set by torchrun itself, whose own store listens at MASTER_PORT.
constexpr const char* kElastic = "TORCHELASTIC_RUN_ID";

std::optional<std::string> look_up(const Environment& environment, const char* name) {
  if (name == nullptr) return std::nullopt;
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> number_in(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int number = 0;
  const char* const end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || stopped != end || number < 0) return std::nullopt;
  return number;
}

// An elastic count, "1:4", is its larger end.
std::optional<int> count_in(std::optional<std::string> text) {
  if (text) text->erase(0, text->rfind(':') + 1);
  return number_in(text);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find_first_of(" ,\n"));
}

int port_of(const Engine& engine, const Environment& environment) {
  const std::optional<int> port = number_in(look_up(environment, engine.port));
  if (!port) return kPort;
  return look_up(environment, kElastic) ? *port + 1 : *port;
}

std::optional<ForeignLauncher> launched_by(const Engine& engine, const Environment& environment) {
  const std::optional<std::string> rank = look_up(environment, engine.rank);
  const std::optional<std::string> count = look_up(environment, engine.count);
  const std::optional<std::string> address = look_up(environment, engine.address);
  const std::optional<int> number = number_in(rank);
  if (!number) return std::nullopt;
  const std::optional<int> processes = count_in(count);
  const bool are_several = engine.count == nullptr ? *number > 0 : processes.value_or(1) > 1;
  if (!are_several) return std::nullopt;

  std::vector<std::string> variables = {fmt::format("{}={}", engine.rank, *rank)};
  if (count) variables.push_back(fmt::format("{}={}", engine.count, *count));
  if (address) variables.push_back(fmt::format("{}={}", engine.address, first_line(*address)));
  // The first process may be told no address: it is its own.
  std::string host = address ? first_line(*address) : *number == 0 ? this_host() : "HOST";
  if (host.find(':') != host.npos) host = "[" + host + "]";
  return ForeignLauncher{.name = engine.name,
                         .variables = fmt::format("{}", fmt::join(variables, ", ")),
                         .rank = *number,
                         .flags = fmt::format("--rank={} --ranks={} --rendezvous=tcp://{}:{}",
                                              *number, processes ? std::to_string(*processes) : "N",
                                              host, port_of(engine, environment))};
}

bool says_ranks(const RankFlags& flags) {
  return flags.rank || flags.ranks || flags.num_ranks || !flags.hostfile.empty();
}

// Scripts of srun and mpirun often set torchrun's variables to the same.
bool says_the_same(const RankPlan& plan, const Environment& environment) {
  return number_in(look_up(environment, "RANK")) == plan.rank &&
         number_in(look_up(environment, "WORLD_SIZE")) == plan.ranks;
}

}  // namespace

Environment foreign_environment() {
  Environment environment;
  const auto take = [&](const char* name) {
    if (name == nullptr) return;
    if (const char* value = std::getenv(name)) environment[name] = value;
  };
  for (const Engine& engine : kEngines) {
    for (const char* name : {engine.rank, engine.count, engine.address, engine.port}) take(name);
  }
  take(kElastic);
  return environment;
}

std::optional<ForeignLauncher> foreign_launcher(const Environment& environment) {
  // torchrun with one process: whatever started it, that one is to train alone.
  if (look_up(environment, "RANK") && count_in(look_up(environment, "WORLD_SIZE")) == 1) {
    return std::nullopt;
  }
  for (const Engine& engine : kEngines) {
    if (auto launcher = launched_by(engine, environment)) return launcher;
  }
  return std::nullopt;
}

void refuse_foreign_launcher(const RankFlags& flags, const Environment& environment) {
  if (says_ranks(flags)) return;
  const std::optional<ForeignLauncher> launcher = foreign_launcher(environment);
  if (!launcher) return;
  const RankPlan plan = plan_ranks(flags, environment);
  if (plan.role == Role::kRank) {
    // mpirun and srun start ranks, and may run inside the others; torchrun runs inside them.
    if (launcher->name != "torchrun" || says_the_same(plan, environment)) return;
    if (!look_up(environment, kElastic)) return;
  }
  throw user_error(
      "{} has started this beside others ({}), and atoll does not read that yet: each would train "
      "a run of its own; give {}, or -n 1 where that is meant",
      launcher->name, launcher->variables, launcher->flags);
}

RankPlan plan_run(const RankFlags& flags, const std::function<bool()>& is_run_of_its_own) {
  Environment environment = rank_environment();
  const std::string advice = slurm_advice(environment);
  environment.merge(foreign_environment());
  const bool are_several = !advice.empty() || foreign_launcher(environment);
  const bool is_alone = !says_ranks(flags) && are_several && is_run_of_its_own();
  if (is_alone) refuse_foreign_launcher(flags, environment);
  RankPlan plan = plan_ranks(flags, environment);
  if (is_alone && plan.role == Role::kAlone && !advice.empty()) log::warning("{}", advice);
  return plan;
}

void refuse_foreign_launch(const Environment& environment) {
  const std::optional<ForeignLauncher> launcher = foreign_launcher(environment);
  if (!launcher || launcher->rank == 0) return;
  throw user_error(
      "{} has started `atoll launch` on other machines before this one ({}), and atoll does not "
      "read that yet; give --join=HOST:PORT of the first one, and --slots=N",
      launcher->name, launcher->variables);
}

void forget_rank_environment() {
  for (const char* name : rank_variables()) ::unsetenv(name);
  for (const auto& [name, value] : foreign_environment()) ::unsetenv(name.c_str());
}

}  // namespace atl::launch
