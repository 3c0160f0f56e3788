#include "atoll/train/config.h"

#include "atoll/base/error.h"
#include "atoll/nn/models/family.h"
#include "atoll/train/config_device.h"
#include "atoll/train/config_elsewhere.h"
#include "atoll/train/config_experts.h"
#include "atoll/train/config_groups.h"
#include "atoll/train/config_offload.h"
#include "atoll/train/config_server.h"
#include "atoll/train/rules.h"

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

std::int64_t default_intermediate_size(const ModelSettings& model) {
  if (model.family == "gpt2") return 4 * model.hidden_size;
  // 8/3: three matrices of SwiGLU then weigh as much as two of 4 x hidden (Shazeer 2020).
  constexpr std::int64_t kMultiple = 32;
  return (8 * model.hidden_size + 3 * kMultiple - 1) / (3 * kMultiple) * kMultiple;
}

}  // namespace

void add_all(SettingRegistry& settings, TrainConfig& config) {
  add_run(settings, config);
  add_device(settings, config.device);
  add_model(settings, config);
  add_data(settings, config);
  add_train(settings, config);
  add_experts(settings, config.moe);
  add_ranks(settings, config);
  add_links(settings, config);
  add_offload(settings, config.offload);
  add_optim(settings, config);
  add_lora(settings, config);
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

nn::ModelConfig inline_model(const TrainConfig& config, std::int64_t vocab_size,
                             std::int64_t eos_token) {
  const ModelSettings& m = config.model;
  nn::ModelConfig model;
  model.family = m.family;
  model.vocab_size = vocab_size;
  model.hidden_size = m.hidden_size;
  model.num_layers = m.num_hidden_layers;
  model.heads.num_heads = m.num_attention_heads;
  model.heads.num_kv_heads =
      m.num_key_value_heads != 0 ? m.num_key_value_heads : m.num_attention_heads;
  model.heads.head_dim = m.head_dim != 0 ? m.head_dim : m.hidden_size / m.num_attention_heads;
  model.intermediate_size =
      m.intermediate_size != 0 ? m.intermediate_size : default_intermediate_size(m);
  model.max_positions =
      m.max_position_embeddings != 0 ? m.max_position_embeddings : config.train.context;
  model.rope_theta = m.rope_theta;
  model.norm_eps = m.norm_eps;
  model.initializer_range = m.initializer_range;
  model.tie_embeddings = m.tie_word_embeddings;
  model.sliding_window = m.sliding_window;
  model.eos_token = eos_token;
  model.experts = expert_shape(m, model.intermediate_size);
  // Through config.json and back: a new model is then exactly what its directory will say.
  return nn::parse_config(nn::config_json(model), "model.*");
}

}  // namespace atl::train
