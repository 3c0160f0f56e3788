#include "atoll/train/island/run_identity.h"

#include "atoll/base/hash.h"
#include "atoll/nn/models/family.h"

namespace atl::train {

island::RunIdentity run_identity(const TrainConfig& config, const Settings& settings,
                                 const nn::ModelConfig& model, const PreparedCorpus& corpus,
                                 const std::string& base_hash) {
  std::vector<std::pair<std::string, std::string>> common;
  for (const Setting& setting : settings.all()) {
    if (setting.scope == Scope::kRun) common.emplace_back(setting.key, setting.toml());
  }
  const auto hash = [](const std::string& text) {
    return to_hex(hash_bytes(text.data(), text.size()));
  };
  const bool is_private = config.outer.data == "private";
  return {.run = fmt::format("seed {}", config.run.seed),
          .version = island::kProtocolVersion,
          .model = hash(nn::config_json(model) + base_hash),
          .tokenizer = hash(corpus.tokenizer.file_content()),
          .data = is_private ? "private" : corpus.hash(),
          .settings = island::settings_text(common)};
}

}  // namespace atl::train
