#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/pages/metrics_page.h"
#include "atoll/launch/process_group.h"
#include "atoll/param_server/service.h"

#include <poll.h>

namespace atl::cli {

namespace {

struct Options {
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string join;
  std::string dir;
  std::string transport = "grpc";
  std::string identity;
  std::string secret;
  double disk_seconds = 1;
  int threads = 0;
  bool schedules_only = false;
  MetricsFlags metrics;
};

std::optional<std::filesystem::path> path_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

int run(const Options& options) {
  if (options.schedules_only && !options.join.empty()) {
    throw user_error(
        "--scheduler-only with --join: a run has one scheduler; leave one of them out");
  }
  launch::SignalFd signals;  // before any thread is made
  param_server::ListenOptions listen = {
      .listen = options.listen,
      .advertise = options.advertise,
      .link = {.transport = param_server::parse_transport(options.transport, "--transport"),
               .identity = path_of(options.identity),
               .secret = path_of(options.secret)}};
  param_server::check_link(listen.link, "--transport", "--identity");
  std::optional<param_server::SchedulerService> scheduler;
  std::optional<param_server::ServerService> server;
  std::string join = options.join;
  if (join.empty()) {
    // The slices of this process's server lie beside it.
    const std::filesystem::path dir =
        options.dir.empty() ? "" : std::filesystem::path(options.dir) / "scheduler";
    scheduler.emplace(listen, dir);
    join = scheduler->address();
    log::info("scheduler at {}", join);
    listen.listen = listen.listen.substr(0, listen.listen.rfind(':')) + ":0";
    listen.advertise.clear();
  }
  if (!options.schedules_only) {
    server.emplace(
        listen, join,
        param_server::DiskOptions{.dir = options.dir, .every_seconds = options.disk_seconds},
        options.threads);
    log::info("server at {}", server->address());
  }
  const auto metrics = serve_metrics(options.metrics, [&] {
    return (scheduler ? to_page(scheduler->status()) : "") +
           (server ? to_page(server->status()) : "");
  });
  for (;;) {
    pollfd fd = {.fd = signals.fd(), .events = POLLIN};
    ::poll(&fd, 1, 100);
    if (const int signal = signals.next(); signal != 0) return 128 + signal;
    if (server) {
      if (const auto failure = server->failure()) throw Error(*failure);
    }
    if (scheduler) {
      if (const auto failure = scheduler->failure()) throw Error(*failure);
    }
    const bool is_over = scheduler ? scheduler->is_finished() : server->is_finished();
    if (!is_over) continue;
    log::info("the run is finished");
    return 0;
  }
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("--listen", options->listen, "HOST:PORT where workers and servers call it")
      .show_default();
  parser.add_option("--advertise", options->advertise,
                    "HOST:PORT under which they reach --listen; the same if not given");
  parser.add_option(
      "--join", options->join,
      "HOST:PORT of the run's scheduler; without it, this process is the scheduler too");
  parser.add_option(
      "--dir", options->dir,
      "Where its parameters, and what the scheduler knows, are kept on disk, so that it "
      "can come back when it is killed; servers do not need it with sync.replicas = 2");
  parser.add_option("--disk-seconds", options->disk_seconds, "Between two writes to --dir")
      .show_default();
  parser
      .add_option(
          "--transport", options->transport,
          "grpc, with TLS or a secret; or tcp, faster, not encrypted, for networks that are "
          "trusted. As sync.transport of the workers")
      .show_default();
  parser.add_option(
      "--identity", options->identity,
      "Directory with its certificate (atoll certs issue); needed over grpc unless HOST "
      "is this machine");
  parser.add_option(
      "--secret", options->secret,
      "File with a secret that workers must know (sync.secret), made if missing; instead of "
      "--identity, on one machine or over tcp");
  parser.add_option("--threads", options->threads, "CPU threads of updates; 0: all").show_default();
  add_metrics_flags(parser, options->metrics);
  parser.add_flag("--scheduler-only", options->schedules_only,
                  "Order the run and hold no parameters");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command server_command() {
  return {.name = "server",
          .summary = "Hold parameters that workers pull and push gradients to (sync.mode = ps).",
          .example =
              "  atoll server --listen 127.0.0.1:7600 --secret runs/secret\n"
              "  atoll server --join 127.0.0.1:7600 --secret runs/secret",
          .stray = "the scheduler's address is given with --join, its own with --listen",
          .add = add};
}

}  // namespace atl::cli
