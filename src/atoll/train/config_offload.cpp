#include "atoll/train/config_offload.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/train/rules.h"

namespace atl::train {

namespace {

std::string named(const Settings& settings, const char* key) {
  const Setting& setting = settings.find(key);
  return fmt::format("{} ({}, {})", key, to_toml(setting.value()), setting.origin);
}

}  // namespace

void add_offload(SettingRegistry& settings, OffloadSettings& o) {
  settings.group("offload",
                 "Training state that is too large for memory, in a file: docs/offload.md. Changes "
                 "no bit of the result.",
                 Scope::kIsland);
  settings.add("offload.optimizer", &o.optimizer,
               "Where the optimizer's state lies. file: on the disk, read and written a piece at a "
               "time during the update. host: memory of the host beside that of a GPU.",
               one_of({"none", "file", "host"}));
  settings.add("offload.params", &o.params,
               "Where parameters and gradients lie. file: on the disk; a stage's are in memory "
               "while it runs. Needs offload.optimizer = file.",
               one_of({"none", "file", "host"}));
  settings
      .add("offload.dir", &o.dir,
           "Directory of the file, on a fast disk of this machine; empty: run.dir. The file has no "
           "name and goes when the run ends.")
      .with_scope(Scope::kHost);
  settings.add("offload.piece_mib", &o.piece_mib,
               "MiB of each f32 vector (gradients, moments, ...) in a piece of an update; three "
               "pieces are in memory at once.",
               between(0.03125, 1024));
  settings.known_elsewhere_as("offload.optimizer",
                              {"offload_optimizer", "optimizer_offload", "cpu_offload"});
  settings.known_elsewhere_as("offload.params", {"offload_param", "offload_params"});
  settings.known_elsewhere_as("offload.dir", {"nvme_path", "offload_dir"});
}

void validate_offload(const TrainConfig& config, const Settings& s) {
  const bool is_gpu = config.device.kind == "cuda" || config.device.kind == "fake_cuda";
  for (const char* key : {"offload.optimizer", "offload.params"}) {
    if (is_gpu || to_toml(s.find(key).value()) != "\"host\"") continue;
    throw user_error(
        "{}: this run {} on a CPU, whose state lies in the host's memory as it is; use file, or "
        "none",
        named(s, key), config.device.kind == "auto" ? "may compute" : "computes");
  }
  const bool optimizer = config.offload.optimizer != "none";
  if (config.offload.optimizer == "host" && !s.find("offload.dir").is_default()) {
    throw user_error("{} is the directory of a file, and {} needs none; remove it",
                     named(s, "offload.dir"), named(s, "offload.optimizer"));
  }
  if (config.offload.params == "file" && !optimizer) {
    throw user_error("{} needs the optimizer's state in the file too; set offload.optimizer=file",
                     named(s, "offload.params"));
  }
  if (!optimizer) {
    for (const char* key : {"offload.dir", "offload.piece_mib"}) {
      if (s.find(key).is_default()) continue;
      throw user_error("{} without offload.optimizer does nothing; set offload.optimizer=file",
                       named(s, key));
    }
    return;
  }
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "offload.optimizer"),
                     named(s, key), remedy);
  };
  refuse(config.parallel.layout == "auto", "parallel.layout",
         "the planner does not know how fast the disk is: set the layout by hand");
  refuse(config.parallel.tp > 1, "parallel.tp", "use data parallel with dp.zero");
  refuse(config.parallel.pp > 1, "parallel.pp", "use data parallel with dp.zero");
  refuse(config.parallel.cp > 1, "parallel.cp", "use data parallel with dp.zero");
  refuse(config.parallel.ep > 1, "parallel.ep", "use data parallel with dp.zero");
  refuse(config.lora.rank > 0, "lora.rank", "an adapter's state is small: leave offload out");
  refuse(config.launch.replicate, "launch.replicate", "a copy would lie in memory: leave it out");
  refuse(!config.island.coordinator.empty(), "island.coordinator",
         "an outer step needs the state in memory: leave offload out");
  refuse(config.checkpoint.async, "checkpoint.async",
         "it copies the whole state in memory: leave it out");
  if (config.offload.params != "file") return;
  if (config.train.exact) {
    throw user_error("{} does not go together with {} yet; leave train.exact out",
                     named(s, "offload.params"), named(s, "train.exact"));
  }
}

OffloadChoice offload_options(const TrainConfig& config, int num_ranks) {
  OffloadChoice choice;
  choice.optimizer = config.offload.optimizer != "none";
  choice.params = config.offload.params == "file";
  if (choice.params && num_ranks > 1 && config.dp.zero != 3) {
    throw user_error(
        "offload.params = file puts a rank's part of the parameters into a file, and with dp.zero "
        "= {} each of {} has all of them; set dp.zero=3",
        config.dp.zero, counted(num_ranks, "rank"));
  }
  if (config.offload.optimizer == "file") {
    choice.directory = config.offload.dir.empty() ? config.run.dir : config.offload.dir;
  }
  // Whole blocks of the file: pieces then begin where its pages do.
  constexpr std::int64_t kBlock = 8192;
  const auto elements = static_cast<std::int64_t>(config.offload.piece_mib * 0x1p20 / 4);
  choice.piece_elements = std::max(elements / kBlock, std::int64_t{1}) * kBlock;
  return choice;
}

}  // namespace atl::train
