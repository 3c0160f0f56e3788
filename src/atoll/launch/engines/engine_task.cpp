#include "atoll/launch/engines/engine_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

// Where ranks meet when the engine names no port: what torchrun takes.
constexpr int kPort = 29500;

// Names of variables; nullptr: there is none.
struct Engine {
  const char* name;
  const char* rank;
  const char* count;
  const char* address = nullptr;  // of the first process; a list begins with it
  const char* port = nullptr;
  const char* processes = nullptr;  // how many ranks it wants on a machine
  const char* gpus = nullptr;       // how many GPUs a machine has
  bool starts_ranks = false;        // each process is one rank
};

// From the innermost to the outermost: each may run inside the next.
constexpr Engine kEngines[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .count = "WORLD_SIZE",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .starts_ranks = true},
    {.name = "Kubeflow Trainer",
     .rank = "PET_NODE_RANK",
     .count = "PET_NNODES",
     .address = "PET_MASTER_ADDR",
     .port = "PET_MASTER_PORT",
     .processes = "PET_NPROC_PER_NODE"},
    {.name = "LeaderWorkerSet",
     .rank = "LWS_WORKER_INDEX",
     .count = "LWS_GROUP_SIZE",
     .address = "LWS_LEADER_ADDRESS"},
    {.name = "SkyPilot",
     .rank = "SKYPILOT_NODE_RANK",
     .count = "SKYPILOT_NUM_NODES",
     .address = "SKYPILOT_NODE_IPS",
     .gpus = "SKYPILOT_NUM_GPUS_PER_NODE"},
    {.name = "dstack",
     .rank = "DSTACK_NODE_RANK",
     .count = "DSTACK_NODES_NUM",
     .address = "DSTACK_MASTER_NODE_IP",
     .gpus = "DSTACK_GPUS_PER_NODE"},
    {.name = "AWS Batch",
     .rank = "AWS_BATCH_JOB_NODE_INDEX",
     .count = "AWS_BATCH_JOB_NUM_NODES",
     .address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"},
    {.name = "a Kubernetes Job", .rank = "JOB_COMPLETION_INDEX", .count = nullptr}};

// Set by torchrun itself, whose own store listens at MASTER_PORT.
constexpr const char* kElastic = "TORCHELASTIC_RUN_ID";
// How many of the ranks are on this machine.
constexpr const char* kLocalCount = "LOCAL_WORLD_SIZE";
// In every container of Kubernetes.
constexpr const char* kKubernetes = "KUBERNETES_SERVICE_HOST";
// No variable: what this machine calls itself, with its domain.
constexpr const char* kHost = "(host)";

std::optional<std::string> value_of(const Environment& environment, const char* name) {
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
  const std::optional<int> port = number_in(value_of(environment, engine.port));
  if (!port) return kPort;
  return value_of(environment, kElastic) ? *port + 1 : *port;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Pods of an Indexed Job are called after their index: "train-3.train.ns.svc" meets the others at
// "train-0.train.ns.svc".
std::string first_pod(const std::string& host, int index) {
  const std::size_t dot = std::min(host.find('.'), host.size());
  const std::string ending = fmt::format("-{}", index);
  const std::string name = host.substr(0, dot);
  if (!name.ends_with(ending)) return "";
  return name.substr(0, name.size() - ending.size()) + "-0" + host.substr(dot);
}

// The host of the first process; empty: unknown.
std::string first_host(const Engine& engine, const Environment& environment, int index, int count) {
  const std::optional<std::string> told = value_of(environment, engine.address);
  if (!told) {
    const std::string here = value_of(environment, kHost).value_or(this_host());
    return index == 0 ? here : engine.address == nullptr ? first_pod(here, index) : "";
  }
  const std::string host = first_line(*told);
  // PyTorchJob tells its first pod "localhost", where no other pod can reach it.
  const bool are_elsewhere = value_of(environment, kKubernetes) &&
                             number_in(value_of(environment, kLocalCount)).value_or(1) < count;
  return index == 0 && is_loopback(host) && are_elsewhere ? this_host() : host;
}

std::optional<EngineTask> task_of(const Engine& engine, const Environment& environment,
                                  bool is_counted) {
  const std::optional<std::string> rank = value_of(environment, engine.rank);
  const std::optional<std::string> count = value_of(environment, engine.count);
  const std::optional<std::string> address = value_of(environment, engine.address);
  const std::optional<int> index = number_in(rank);
  if (!index) return std::nullopt;
  const std::optional<int> processes = count_in(count);
  const int wanted = number_in(value_of(environment, engine.processes)).value_or(1);
  const int gpus = number_in(value_of(environment, engine.gpus)).value_or(1);
  const bool are_several = engine.count == nullptr
                               ? *index > 0 || is_counted
                               : processes.value_or(1) > 1 || (processes && wanted > 1);
  if (!are_several) return std::nullopt;

  std::vector<std::string> variables = {fmt::format("{}={}", engine.rank, *rank)};
  if (count) variables.push_back(fmt::format("{}={}", engine.count, *count));
  if (address) variables.push_back(fmt::format("{}={}", engine.address, first_line(*address)));
  std::string host = first_host(engine, environment, *index, processes.value_or(0));
  if (host.find(':') != host.npos) host = "[" + host + "]";
  return EngineTask{
      .engine = engine.name,
      .variables = fmt::format("{}", fmt::join(variables, ", ")),
      .is_rank = engine.starts_ranks,
      .is_innermost = engine.starts_ranks && value_of(environment, kElastic),
      .index = *index,
      .count = processes.value_or(0),
      .ranks_each = std::max({1, wanted, gpus}),
      .rendezvous =
          host.empty() ? "" : fmt::format("tcp://{}:{}", host, port_of(engine, environment))};
}

template <typename Visit>
void each_variable(const Visit& visit) {
  for (const Engine& engine : kEngines) {
    for (const char* name :
         {engine.rank, engine.count, engine.address, engine.port, engine.processes, engine.gpus}) {
      if (name != nullptr) visit(name);
    }
  }
  for (const char* name : {kElastic, kLocalCount}) visit(name);
}

// With its domain, where it knows one: a name alone means nothing to another pod.
std::string whole_name() {
  std::string name = this_host();
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
  std::string whole = found->ai_canonname == nullptr ? name : found->ai_canonname;
  ::freeaddrinfo(found);
  return whole;
}

}  // namespace

Environment engine_environment() {
  Environment environment;
  const auto take = [&](const char* name) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  };
  each_variable(take);
  if (environment.empty()) return environment;
  take(kKubernetes);
  environment[kHost] = whole_name();
  return environment;
}

std::optional<EngineTask> engine_task(const Environment& environment, bool is_counted) {
  // torchrun with one process: whatever started it, that one is to train alone.
  if (value_of(environment, "RANK") && count_in(value_of(environment, "WORLD_SIZE")) == 1) {
    return std::nullopt;
  }
  for (const Engine& engine : kEngines) {
    if (auto task = task_of(engine, environment, is_counted)) return task;
  }
  return std::nullopt;
}

void forget_engine_environment() {
  each_variable([](const char* name) { ::unsetenv(name); });
}

}  // namespace atl::launch
