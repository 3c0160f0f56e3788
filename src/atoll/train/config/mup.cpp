#include "atoll/train/config/mup.h"

#include <string>
#include <vector>

#include "atoll/optim/registry.h"
#include "atoll/train/config/family_names.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

std::vector<std::string> scaling_optimizers() {
  std::vector<std::string> names;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    if (kind.scales_rates) names.emplace_back(kind.name);
  }
  return names;
}

}  // namespace

void add_parametrisation(SettingRegistry& settings, ModelSettings& m) {
  constexpr const char* kTunedOn = "that of the model that the learning rate is tuned on";
  settings
      .add("model.parametrisation", &m.parametrisation,
           "How initial weights and learning rates follow the model's width. standard: they do "
           "not. mup: so that the best optim.lr is the same at all widths, the maximal update "
           "parametrisation: docs/mup.md.",
           one_of({"standard", "mup"}))
      .fixed()
      .when("mup")
      .needs("model.mup_base_width", changed("256"), kTunedOn)
      .needs("model.mup_base_head_dim", changed("64"), kTunedOn)
      .needs("optim.kind", Values(scaling_optimizers()), "it has learning rates for these")
      .not_beside("dp.compress", {"onebit_adam", "zeroone_adam"},
                  "signs of momentum are applied with one learning rate for all")
      .not_beside("lora.rank", "it says how whole weights learn, not adapters")
      .not_beside("model.family", Values(families_with(&nn::Family::has_experts)),
                  "there is no rule for models with experts");
  settings
      .add("model.mup_base_width", &m.mup_base_width,
           "mup: the hidden_size at which it is the standard parametrisation: that of the models "
           "that the learning rate is tuned on.",
           at_least(0))
      .fixed()
      .needs("model.parametrisation", "mup");
  settings
      .add("model.mup_base_head_dim", &m.mup_base_head_dim,
           "mup: head_dim of the model of that width; the same as here where wider models have "
           "more heads.",
           at_least(0))
      .fixed()
      .needs("model.parametrisation", "mup");
}

void validate_parametrisation(const TrainConfig& config, const Settings& settings) {
  for (const char* keys : {"model.parametrisation", "model.mup_base"}) {
    rules().check(config, settings, keys);
  }
}

}  // namespace atl::train
