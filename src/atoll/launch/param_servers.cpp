#include "atoll/launch/param_servers.h"

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/launch/children.h"
#include "atoll/launch/islands.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/config/server.h"

namespace atl::launch {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> with_workers(const ServersPlan& plan) {
  std::vector<std::string> overrides = plan.overrides;
  overrides.push_back(fmt::format("--sync.workers={}", plan.num_workers));
  return overrides;
}

// The command line of one worker; the first one has the run's directory.
std::vector<std::string> worker_words(const ServersPlan& plan, const train::TrainConfig& config,
                                      int number, const std::string& scheduler,
                                      const param_server::LinkOptions& link) {
  std::vector<std::string> argv = train_words(
      plan.recipe, plan.overrides, {"run.dir", "sync.workers", "device.threads", "metrics.listen"});
  const auto set = [&](const std::string& key, const std::string& value) {
    argv.push_back(fmt::format("--{}={}", key, value));
  };
  const fs::path dir = config.run.dir;
  set("run.dir",
      number == 0 ? dir.string() : (dir / "workers" / fmt::format("worker-{}", number)).string());
  set("sync.workers", std::to_string(plan.num_workers));
  set("metrics.listen", metrics_listen(config.metrics.listen, 1 + number));
  set("sync.worker", std::to_string(number));
  set("sync.addresses", scheduler);
  if (link.secret) set("sync.secret", link.secret->string());
  const std::int64_t threads = config.device.threads;
  set("device.threads",
      std::to_string(threads > 0 ? threads : std::max(1, available_cpus() / plan.num_workers)));
  return argv;
}

std::vector<std::string> server_words(const train::TrainConfig& config, int number,
                                      const std::string& scheduler,
                                      const param_server::LinkOptions& link, const fs::path& disk,
                                      int num_workers) {
  std::vector<std::string> argv = {
      this_program(), "server", "--join=" + scheduler,
      fmt::format("--transport={}", param_server::name_of(link.transport)), "--threads=1"};
  if (link.secret) argv.push_back("--secret=" + link.secret->string());
  // With copies on other servers nothing needs to be on a disk.
  if (config.sync.replicas == 1) {
    argv.push_back(fmt::format("--dir={}", (disk / fmt::format("server-{}", number)).string()));
    argv.push_back(fmt::format("--disk-seconds={}", config.sync.disk_s));
  }
  if (const train::MetricsSettings& metrics = config.metrics; !metrics.listen.empty()) {
    argv.push_back("--metrics-listen=" + metrics_listen(metrics.listen, num_workers + number));
    const auto add = [&](const char* option, const std::string& value) {
      if (!value.empty()) argv.push_back(fmt::format("--metrics-{}={}", option, value));
    };
    add("token-file", metrics.token_file);
    add("certificate", metrics.certificate);
    add("key", metrics.key);
  }
  return argv;
}

}  // namespace

int run_param_servers(const ServersPlan& plan) {
  Children children(plan.max_restarts);
  const train::Recipe recipe(plan.recipe, with_workers(plan));
  const train::TrainConfig& config = recipe.config();
  // What servers have had belongs to one start of the run, which begins from a checkpoint.
  const fs::path servers = fs::path(config.run.dir) / "servers";
  std::error_code error;
  fs::remove_all(servers, error);
  fs::create_directories(servers, error);
  if (error) {
    throw user_error("cannot make {}: {}; give run.dir a place you may write to", servers.string(),
                     error.message());
  }
  param_server::LinkOptions link = train::link_of(config.sync);
  link.secret = servers / "secret";  // other users of this machine reach its ports, too
  param_server::SchedulerService scheduler(
      {.listen = "127.0.0.1:0", .advertise = "", .link = link});
  const std::shared_ptr<void> served = plan.serve ? plan.serve(scheduler) : nullptr;
  for (int i = 0; i < plan.num_workers; ++i) {
    children.add({.name = fmt::format("worker-{}", i),
                  .argv = worker_words(plan, config, i, scheduler.address(), link),
                  .shows_output = i == 0,
                  .death_signal = SIGKILL});
  }
  for (int i = 1; i <= config.sync.servers; ++i) {
    children.add(
        {.name = fmt::format("server-{}", i),
         .argv = server_words(config, i, scheduler.address(), link, servers, plan.num_workers),
         .shows_output = false,
         .is_server = true,
         .death_signal = SIGKILL});
  }
  log::info(
      "{} and {} on this machine; the scheduler is at {}, and more may join: `atoll server "
      "--join={} --secret={}{}`",
      counted(plan.num_workers, "worker"), counted(config.sync.servers, "server"),
      scheduler.address(), scheduler.address(), link.secret->string(),
      link.transport == param_server::Transport::kTcp ? " --transport=tcp" : "");
  // A worker that is started again when the run has failed would fail as well.
  const int code = children.run([&]() -> std::optional<Error> {
    if (const auto failure = scheduler.failure()) return failure;
    const std::string why = scheduler.status().why_failed;
    return why.empty() ? std::nullopt : std::optional(make_error(ErrorKind::kPeer, "{}", why));
  });
  scheduler.stop();
  return code;
}

}  // namespace atl::launch
