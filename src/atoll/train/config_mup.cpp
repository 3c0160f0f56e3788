#include "atoll/train/config_mup.h"

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/train/config_experts.h"
#include "atoll/train/rules.h"

namespace atl::train {

namespace {

constexpr const char* kKeys[] = {"model.parametrisation", "model.mup_base_width",
                                 "model.mup_base_head_dim"};

std::string scaling_optimizers() {
  std::vector<std::string> names;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    if (kind.scales_rates) names.emplace_back(kind.name);
  }
  return optim::enumerated(names, "or");
}

}  // namespace

void add_parametrisation(SettingRegistry& settings, ModelSettings& m) {
  settings
      .add("model.parametrisation", &m.parametrisation,
           "How initial weights and learning rates follow the model's width. standard: they do "
           "not. mup: so that the best optim.lr is the same at all widths, the maximal update "
           "parametrisation: docs/mup.md.",
           one_of({"standard", "mup"}))
      .fixed();
  settings
      .add("model.mup_base_width", &m.mup_base_width,
           "mup: the hidden_size at which it is the standard parametrisation: that of the models "
           "that the learning rate is tuned on.",
           at_least(0))
      .fixed();
  settings
      .add("model.mup_base_head_dim", &m.mup_base_head_dim,
           "mup: head_dim of the model of that width; the same as here where wider models have "
           "more heads.",
           at_least(0))
      .fixed();
}

bool is_of_parametrisation(std::string_view key) {
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

void validate_parametrisation(const TrainConfig& config, const Settings& settings) {
  const auto named = [&](const char* key) {
    const Setting& setting = settings.find(key);
    return fmt::format("{} ({}, {})", key, to_toml(setting.value()), setting.origin);
  };
  const bool is_mup = config.model.parametrisation == "mup";
  for (const char* key : {"model.mup_base_width", "model.mup_base_head_dim"}) {
    const bool is_given = std::get<std::int64_t>(settings.find(key).value()) != 0;
    if (is_given && !is_mup) {
      throw user_error("{} is for model.parametrisation mup, which is not chosen; remove it",
                       named(key));
    }
    if (!is_given && is_mup) {
      throw user_error(
          "{} compares with a model of another width, and {} is not given; set it to {} of the "
          "model that the learning rate is tuned on",
          named("model.parametrisation"), key,
          std::string_view(key).ends_with("width") ? "hidden_size" : "head_dim");
    }
  }
  if (!is_mup) return;
  if (!optim::find_optimizer(config.optim.kind).scales_rates) {
    throw user_error("{} has learning rates for {}, and {} is another; choose one of these",
                     named("model.parametrisation"), scaling_optimizers(), named("optim.kind"));
  }
  for (const char* name : {"onebit_adam", "zeroone_adam"}) {
    if (config.dp.compress != name) continue;
    throw user_error(
        "{} and {}: signs of momentum are applied with one learning rate for all; "
        "choose another dp.compress",
        named("model.parametrisation"), named("dp.compress"));
  }
  if (config.lora.rank > 0) {
    throw user_error(
        "{} says how whole weights learn, and {} trains adapters; leave model.parametrisation out",
        named("model.parametrisation"), named("lora.rank"));
  }
  if (config.model.is_inline() && has_experts(config.model.family)) {
    throw user_error(
        "{} and {}: there is no rule for models with experts; leave model.parametrisation out",
        named("model.parametrisation"), named("model.family"));
  }
}

}  // namespace atl::train
