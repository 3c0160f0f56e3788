#include "atoll/launch/islands.h"

#include <algorithm>
#include <filesystem>

#include "atoll/base/log.h"
#include "atoll/base/machine.h"
#include "atoll/base/quantity.h"
#include "atoll/island/coordinator/service.h"
#include "atoll/launch/children.h"
#include "atoll/train/recipe.h"

namespace atl::launch {

namespace {

namespace fs = std::filesystem;

// The command line of one island.
std::vector<std::string> words(const IslandsPlan& plan, const train::Recipe& recipe,
                               const std::string& name, const std::string& coordinator,
                               const fs::path& secret) {
  std::vector<std::string> argv =
      train_words(plan.recipe, plan.overrides, {"run.dir", "outer.islands", "device.threads"});
  const fs::path dir = recipe.config().run.dir;
  const auto set = [&](const std::string& key, const std::string& value) {
    argv.push_back(fmt::format("--{}={}", key, value));
  };
  set("island.coordinator", coordinator);
  set("island.secret", secret.string());
  set("island.name", name);
  set("outer.islands", std::to_string(plan.num_islands));
  set("run.dir", (dir / "islands" / name).string());
  const std::int64_t threads = recipe.config().device.threads;
  set("device.threads",
      std::to_string(threads > 0 ? threads : std::max(1, available_cpus() / plan.num_islands)));
  return argv;
}

}  // namespace

int run_islands(const IslandsPlan& plan) {
  Children children(plan.max_restarts);
  const train::Recipe recipe(plan.recipe, plan.overrides);
  const fs::path dir = recipe.config().run.dir;
  // A file, by which the run's processes know each other.
  const fs::path secret = dir / "coordinator" / "secret";
  island::CoordinatorService coordinator({.dir = dir / "coordinator",
                                          .listen = "127.0.0.1:0",
                                          .secret = secret,
                                          .on_island_lost = plan.on_island_lost});
  for (int i = 1; i <= plan.num_islands; ++i) {
    const std::string name = fmt::format("island-{}", i);
    children.add({.name = name,
                  .argv = words(plan, recipe, name, coordinator.address(), secret),
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
