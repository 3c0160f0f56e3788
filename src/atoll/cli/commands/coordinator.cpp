#include <filesystem>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/pages/metrics_page.h"
#include "atoll/cli/pages/run_watch.h"
#include "atoll/cli/pages/watch_beside.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/launch/process_group.h"

#include <poll.h>

namespace atl::cli {

namespace {

struct Options {
  std::string dir;
  std::string listen = "127.0.0.1:7411";
  std::string identity;
  std::string secret;
  WatchFlags watch;
  MetricsFlags metrics;
  std::string webhook;
  bool no_alerts = false;
};

std::optional<std::filesystem::path> path_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return text;
}

int run(const Options& options) {
  namespace fs = std::filesystem;
  if (fs::exists(options.dir) && !fs::is_directory(options.dir)) {
    throw user_error("--dir {} is a file; give a directory, which is made if missing", options.dir);
  }
  if (options.no_alerts && !options.webhook.empty()) {
    throw user_error("--webhook is where alerts go, and --no-alerts says none; leave one out");
  }
  launch::SignalFd signals;  // before any thread is made
  const WatchBeside watch(options.watch, {options.dir});
  std::function<void(std::int64_t, const std::string&)> alerts;
  if (!options.no_alerts) alerts = island_alerts(options.dir, options.dir, options.webhook);
  island::CoordinatorService service({.dir = options.dir,
                                      .listen = options.listen,
                                      .identity = path_of(options.identity),
                                      .secret = path_of(options.secret),
                                      .on_island_lost = alerts});
  const auto metrics = serve_metrics(options.metrics, [&] { return to_page(service.status()); });
  log::info("coordinator at {}; its ledger is in {}", service.address(), options.dir);
  if (options.identity.empty() && options.secret.empty()) {
    log::info("every user of this machine can take part; --secret=FILE keeps others out");
  }
  for (;;) {
    pollfd fd = {.fd = signals.fd(), .events = POLLIN};
    ::poll(&fd, 1, 100);
    if (const int signal = signals.next(); signal != 0) {
      service.stop();
      log::info("stopped; islands go on to the end of their rounds, and the same command goes on");
      return 128 + signal;
    }
    if (const auto failure = service.failure()) throw Error(*failure);
    if (!service.is_finished()) continue;
    service.stop();
    log::info("the run is finished");
    return 0;
  }
}

Action add(ArgumentParser& parser) {
  const auto options = std::make_shared<Options>();
  parser.add_option("--dir", options->dir, "Where its ledger is; made if missing").required();
  parser.add_option("--listen", options->listen, "HOST:PORT where islands call it").show_default();
  parser.add_option(
      "--identity", options->identity,
      "Directory with its certificate (atoll certs issue); needed unless HOST is this "
      "machine");
  parser.add_option(
      "--secret", options->secret,
      "File with a secret that islands of this machine must know (island.secret), made "
      "if missing; instead of --identity");
  add_watch_flags(parser, options->watch);
  add_metrics_flags(parser, options->metrics);
  parser.add_option("--webhook", options->webhook,
                    "http:// or https:// address that alerts are posted to: docs/alerts.md");
  parser.add_flag("--no-alerts", options->no_alerts,
                  "Says nothing in alerts.jsonl of lost islands");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command coordinator_command() {
  return {.name = "coordinator",
          .summary = "Order the outer steps of a run's islands and keep its ledger.",
          .example =
              "  atoll coordinator --dir runs/atoll --listen 0.0.0.0:7411 "
              "--identity authority/identities/coordinator",
          .stray = "its directory is given with --dir, its address with --listen",
          .add = add};
}

}  // namespace atl::cli
