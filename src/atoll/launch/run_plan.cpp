#include "atoll/launch/run_plan.h"

#include <cstdlib>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/launch/engines/slurm.h"
#include "atoll/launch/generation.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {

namespace {

// The variables of a container are those of what it was started for, and everybody's at a shell in
// it.
bool is_shell_in_container(const EngineTask& task, const Environment& environment) {
  return !task.is_innermost && environment.count("KUBERNETES_SERVICE_HOST") > 0 && is_in_shell();
}

std::string flags_of(const EngineTask& task) {
  return fmt::format("--rank={} --ranks={} --rendezvous={}", task.index,
                     task.count > 0 ? std::to_string(task.count) : "N",
                     task.rendezvous.empty() ? "tcp://HOST:PORT" : task.rendezvous);
}

// What this process is to the engine; nothing where that does not matter.
std::optional<EngineTask> find_task(const RankFlags& flags, const std::function<RunKind()>& kind) {
  if (flags.rank || !flags.hostfile.empty()) return std::nullopt;
  const Environment environment = engine_environment();
  std::optional<EngineTask> task = engine_task(environment, flags.ranks.has_value());
  if (!task) return std::nullopt;
  const RunKind run = kind();
  const bool is_alone = run == RunKind::kIsland && task->count == 0 && !flags.ranks;
  if (run == RunKind::kWorker || is_alone) return std::nullopt;
  if (!is_shell_in_container(*task, environment)) return task;
  log::warning(
      "this container was started by {} ({}), and this is a shell in it, so what is called here "
      "trains by itself; {} makes it one of those ranks",
      task->engine, task->variables, flags_of(*task));
  return std::nullopt;
}

void tell(const EngineTask& task, const RankPlan& plan) {
  if (plan.rank != 0 || plan.ranks == 1) return;
  log::info("{} has started {} ({}); {} ranks meet at {}", task.engine,
            task.count == 0  ? "several processes"
            : task.is_rank   ? fmt::format("{} ranks", task.count)
            : task.count > 1 ? fmt::format("{} machines", task.count)
                             : "one machine",
            task.variables, plan.ranks, plan.rendezvous.empty() ? "here" : plan.rendezvous);
}

}  // namespace

RankPlan plan_run(const RankFlags& flags, const std::function<RunKind()>& kind) {
  const Environment environment = rank_environment();
  const std::optional<EngineTask> task = find_task(flags, kind);
  const bool is_of_engine = task && (task->is_innermost || !is_launched(environment));
  if (is_of_engine) {
    RankPlan plan = plan_engine_task(flags, *task);
    tell(*task, plan);
    return plan;
  }
  RankPlan plan = plan_ranks(flags, environment);
  const bool says_ranks = flags.rank || flags.ranks || flags.num_ranks || !flags.hostfile.empty();
  if (plan.role == Role::kAlone && !says_ranks) {
    const std::string advice = slurm_advice(environment);
    if (!advice.empty() && kind() == RunKind::kWhole) log::warning("{}", advice);
  }
  return plan;
}

void forget_rank_environment() {
  for (const char* name : rank_variables()) ::unsetenv(name);
  forget_engine_environment();
}

void wait_for_rendezvous(const RankPlan& plan, double timeout_s) {
  if (plan.engine.empty() || !plan.rendezvous.starts_with("tcp://")) return;
  wait_for_host(split_address(plan.rendezvous).first, timeout_s);
}

}  // namespace atl::launch
