#include "atoll/train/checkpoint/resume_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"

namespace atl::train {

namespace fs = std::filesystem;

void check_same_run(const TrainConfig& config, const Settings& settings,
                    const std::string& corpus_hash, const Position& position, bool tells) {
  if (position.corpus_hash != corpus_hash) {
    throw user_error(
        "the corpus is not the one that {} was trained on: its hash is {}, and the checkpoint has "
        "{}; restore the text and the data.* settings of that run, or choose another run.dir",
        config.run.dir, corpus_hash, position.corpus_hash);
  }
  const std::map<std::string, std::string> before(position.settings.begin(),
                                                  position.settings.end());
  for (const Setting& setting : settings.all()) {
    const auto was = before.find(setting.key);
    if (was == before.end() || was->second == setting.toml()) continue;
    if (setting.is_fixed) {
      throw user_error(
          "{0} is {1} and was {2} in the {3} that {4} has taken; set {0} back to {2}, or choose "
          "another run.dir",
          setting.key, setting.toml(), was->second, counted(position.step, "step"), config.run.dir);
    }
    if (tells) log::info("{} is now {}, was {}", setting.key, setting.toml(), was->second);
  }
  if (!tells || !config.island.coordinator.empty()) return;
  if (const std::string jump = describe_rate_jump(config, position); !jump.empty()) {
    log::warning("{}", jump);
  }
}

optim::Schedule schedule_of(const TrainConfig& config) {
  return {.kind = optim::schedule_kind(config.optim.schedule),
          .peak = config.optim.lr,
          .min_ratio = config.optim.min_lr_ratio,
          .warmup_steps = config.optim.warmup_steps,
          .total_steps = config.train.steps,
          .decay_fraction = config.optim.decay_fraction};
}

std::string describe_rate_jump(const TrainConfig& config, const Position& position) {
  if (position.step == 0) return "";
  TrainConfig before;
  Settings settings = make_settings(before);
  for (const auto& [key, value] : position.settings) {
    const bool is_of_schedule = key == "train.steps" || key == "optim.schedule" ||
                                key == "optim.lr" || key == "optim.min_lr_ratio" ||
                                key == "optim.warmup_steps" || key == "optim.decay_fraction";
    if (is_of_schedule) settings.load_toml_text(fmt::format("{} = {}", key, value), "checkpoint");
  }
  if (before.optim.lr != config.optim.lr) return "";
  const double is = schedule_of(config).learning_rate(position.step);
  // Past its end a schedule stays where it is.
  const double was = schedule_of(before).learning_rate(position.step);
  constexpr double kNoticed = 0.05;
  if (std::abs(is - was) <= kNoticed * std::max(is, was)) return "";
  const std::string holds =
      was > 0
          ? fmt::format("; to keep {0:.2e}, give --optim.schedule=constant --optim.lr={0:.2e}", was)
          : "";
  return fmt::format(
      "after step {} the learning rate jumps from {:.2e} to {:.2e}: the schedule is now {} over "
      "{}, and was {} over {}{}; begin a run that may become longer with optim.schedule = wsd, "
      "which is constant until its last part",
      position.step, was, is, config.optim.schedule, counted(config.train.steps, "step"),
      before.optim.schedule, counted(before.train.steps, "step"), holds);
}

void check_same_base(const std::string& hash, const fs::path& base, const fs::path& checkpoint,
                     const std::string& trained_beside) {
  if (trained_beside.empty() || trained_beside == hash) return;
  const fs::path config = checkpoint / model_dir::kAdapterConfigFile;
  throw user_error(
      "the weights in {} are not those that the adapter in {} was trained with, which were in {}; "
      "set model.from to a directory that has those weights, or choose another run.dir",
      base.string(), checkpoint.string(),
      model_dir::parse_adapter_config(read_file(config), config.string()).base);
}

}  // namespace atl::train
