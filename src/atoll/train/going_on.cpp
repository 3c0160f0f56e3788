#include "atoll/train/going_on.h"

#include <map>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"

namespace atl::train {

namespace fs = std::filesystem;

void check_same_run(const TrainConfig& config, const Settings& settings,
                    const std::string& corpus_hash, const Position& position, bool tells) {
  if (position.corpus_hash != corpus_hash) {
    throw user_error(
        "the corpus is not the one that {} was trained on (hash {} against {}); give back the same "
        "text and data.* settings, or choose another run.dir",
        config.run.dir, corpus_hash, position.corpus_hash);
  }
  const std::map<std::string, std::string> before(position.settings.begin(),
                                                  position.settings.end());
  for (const Setting& setting : settings.all()) {
    const auto was = before.find(setting.key);
    if (was == before.end() || was->second == setting.toml()) continue;
    if (setting.is_fixed) {
      throw user_error(
          "{} is {} and was {} in the {} already taken in {}; set it back, or choose another "
          "run.dir",
          setting.key, setting.toml(), was->second, counted(position.step, "step"), config.run.dir);
    }
    if (tells) log::info("{} is now {}, was {}", setting.key, setting.toml(), was->second);
  }
}

void check_same_base(const std::string& hash, const fs::path& base, const fs::path& checkpoint,
                     const std::string& trained_beside) {
  if (trained_beside.empty() || trained_beside == hash) return;
  const fs::path config = checkpoint / model_dir::kAdapterConfigFile;
  throw user_error(
      "the weights in {} are not those that the adapter {} was trained beside, which were in {}; "
      "set model.from to these, or choose another run.dir",
      base.string(), checkpoint.string(),
      model_dir::parse_adapter_config(read_file(config), config.string()).base);
}

}  // namespace atl::train
