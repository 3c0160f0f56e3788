#include <CLI/CLI.hpp>
#include <memory>

#include "atoll/base/log.h"
#include "atoll/cli/commands.h"
#include "atoll/cli/launch_island.h"
#include "atoll/island/coordinator_service.h"

#include <poll.h>

namespace atl::cli {

namespace {

struct Options {
  std::string dir;
  std::string listen = "127.0.0.1:7411";
  std::string identity;
};

int run(const Options& options) {
  SignalTap signals;  // before any thread is made
  island::CoordinatorService service(
      {.dir = options.dir,
       .listen = options.listen,
       .identity = options.identity.empty()
                       ? std::nullopt
                       : std::optional<std::filesystem::path>(options.identity)});
  log::info("coordinator at {}; its ledger is in {}", service.address(), options.dir);
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

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("--dir", options->dir, "Where its ledger is; made if missing")->required();
  app.add_option("--listen", options->listen, "HOST:PORT where islands call it")
      ->capture_default_str();
  app.add_option("--identity", options->identity,
                 "Directory with its certificate (atoll certs issue); needed unless HOST is this "
                 "machine");
  return [options](const Invocation&) { return run(*options); };
}

}  // namespace

Command coordinator_command() {
  return {.name = "coordinator",
          .summary = "Order the outer steps of a run's islands and keep its ledger.",
          .example =
              "  atoll coordinator --dir runs/atoll --listen 0.0.0.0:7411 "
              "--identity authority/identities/coordinator",
          .add = add};
}

}  // namespace atl::cli
