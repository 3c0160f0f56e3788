#include "atoll/launch/islands.h"

#include <algorithm>
#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/processes/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/launch/children.h"
#include "atoll/train/config/recipe.h"
#include "atoll/wire/address.h"

namespace atl::launch {

namespace {

namespace fs = std::filesystem;

std::string island_name(int number) {
  return fmt::format("island-{}", number);
}

// The command line of one island.
std::vector<std::string> words(const IslandsPlan& plan, const train::Recipe& recipe, int number,
                               const std::string& coordinator, const fs::path& secret) {
  std::vector<std::string> argv =
      train_words(plan.recipe, plan.overrides,
                  {"run.dir", "outer.islands", "device.threads", "metrics.listen"});
  const std::string name = island_name(number);
  const fs::path dir = recipe.config().run.dir;
  const auto set = [&](const std::string& key, const std::string& value) {
    argv.push_back(fmt::format("--{}={}", key, value));
  };
  set("island.coordinator", coordinator);
  set("island.secret", secret.string());
  set("island.name", name);
  set("outer.islands", std::to_string(plan.num_islands));
  set("metrics.listen", metrics_listen(recipe.config().metrics.listen, number));
  set("run.dir", (dir / "islands" / name).string());
  const std::int64_t threads = recipe.config().device.threads;
  set("device.threads",
      std::to_string(threads > 0 ? threads : std::max(1, available_cpus() / plan.num_islands)));
  return argv;
}

}  // namespace

std::string metrics_listen(const std::string& first, int number) {
  if (first.empty()) return "";
  wire::HostPort address = wire::parse_address(first, "metrics.listen");
  if (address.port == 0) return first;
  constexpr int kLastPort = 65535;
  address.port += number;
  if (address.port > kLastPort) {
    throw user_error("metrics.listen {}: process {} would take port {}; begin lower", first, number,
                     address.port);
  }
  return wire::to_string(address);
}

int run_islands(const IslandsPlan& plan) {
  Children children(plan.max_restarts);
  const train::Recipe recipe(plan.recipe, plan.overrides);
  if (recipe.config().run.on_signal == "save") children.pass_usr1_on();
  const fs::path dir = recipe.config().run.dir;
  // A file, by which the run's processes know each other.
  const fs::path secret = dir / "coordinator" / "secret";
  island::CoordinatorService coordinator({.dir = dir / "coordinator",
                                          .listen = "127.0.0.1:0",
                                          .secret = secret,
                                          .on_island_lost = plan.on_island_lost});
  const std::shared_ptr<void> served = plan.serve ? plan.serve(coordinator) : nullptr;
  for (int i = 1; i <= plan.num_islands; ++i) {
    children.add({.name = island_name(i),
                  .argv = words(plan, recipe, i, coordinator.address(), secret),
                  .shows_output = i == 1});
  }
  log::info(
      "coordinator at {}: {} on this machine; more may join with "
      "--island.coordinator={} --island.secret={} --island.name=NAME",
      coordinator.address(), counted(plan.num_islands, "island"), coordinator.address(),
      secret.string());
  const int code = children.run([&] { return coordinator.failure(); });
  coordinator.stop();
  return code;
}

}  // namespace atl::launch
