#include "atoll/base/error.h"
#include "atoll/train/config/aliases.h"
#include "atoll/train/config/config.h"
#include "atoll/train/config/device.h"
#include "atoll/train/config/experts.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/offload.h"
#include "atoll/train/config/rules.h"
#include "atoll/train/config/server.h"

namespace atl::train {

namespace {

constexpr double kMaxSeed = 0x1p53;  // what a double, and so JSON and Python's floats, hold exactly

void check_directory(const TrainConfig& config, const Settings&) {
  if (!config.run.dir.empty()) return;
  throw user_error(
      "run.dir is not set: give a recipe that sets it (a TOML file, as an argument), or say where "
      "the run may write, e.g. --run.dir=runs/first");
}

void add_run(SettingRegistry& settings, TrainConfig& c) {
  settings.group("run", "The run as a whole.");
  settings
      .add("run.dir", &c.run.dir,
           "Directory of checkpoints, metrics and the resolved settings; made if missing. The same "
           "command on the same directory goes on where it stopped.")
      .with_scope(Scope::kIsland)
      .checked("", check_directory);
  settings
      .add("run.seed", &c.run.seed, "Decides initial weights, sample order and dropout.",
           between(0, kMaxSeed))
      .fixed();
  settings
      .add(
          "run.on_signal", &c.run.on_signal,
          "What SIGUSR1 does: `end` saves and ends the run, as Ctrl-C, SIGTERM, SIGHUP and SIGUSR2 "
          "always do; `save` saves and goes on. Schedulers send it before time is up (`#SBATCH "
          "--signal=USR1@120`).",
          one_of({"end", "save"}))
      .with_scope(Scope::kIsland);
}

}  // namespace

void add_all(SettingRegistry& settings, TrainConfig& config) {
  add_run(settings, config);
  add_device(settings, config.device);
  add_model(settings, config);
  add_data(settings, config);
  add_train(settings, config);
  add_preference(settings, config);
  add_experts(settings, config.moe);
  add_ranks(settings, config);
  add_links(settings, config);
  add_offload(settings, config.offload);
  add_optim(settings, config);
  add_lora(settings, config);
  add_rl(settings, config);
  add_sync(settings, config.sync);
  add_islands(settings, config);
  add_outer(settings, config);
  add_reporting(settings, config);
  add_watching(settings, config);
  add_names_elsewhere(settings.settings());
}

Settings make_settings(TrainConfig& config) {
  Settings settings;
  SettingRegistry registry(settings, &rules());
  add_all(registry, config);
  return settings;
}

void validate(const TrainConfig& config, const Settings& settings) {
  rules().check(config, settings);
}

}  // namespace atl::train
