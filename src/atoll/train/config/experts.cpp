#include "atoll/train/config/experts.h"

#include "atoll/base/error.h"
#include "atoll/train/config/family_names.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

void add_expert_shape(SettingRegistry& settings, ModelSettings& m) {
  settings
      .add("model.num_experts", &m.num_experts, "Experts in place of each MLP; 0: 8.", at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .only_with("model.family", Values(families_with(&nn::Family::has_experts)));
  settings
      .add("model.num_experts_per_tok", &m.num_experts_per_tok,
           "Experts that each token goes through; 0: 2.", at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .only_with("model.family", Values(families_with(&nn::Family::has_experts)));
  settings
      .add("model.moe_intermediate_size", &m.moe_intermediate_size,
           "Width inside an expert; 0: model.intermediate_size, which is that of mixtral's "
           "experts.",
           at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .only_with("model.family", Values(families_with(&nn::Family::has_expert_width)));
  settings
      .add("model.norm_topk_prob", &m.norm_topk_prob,
           "Divide the weights of a token's experts by their sum, as mixtral does; deepseek_v2 "
           "never does.")
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .only_with("model.family", Values(families_with(&nn::Family::has_expert_width)));
}

void add_experts(SettingRegistry& settings, ExpertSettings& e) {
  settings.group("moe", "Training of models with experts: docs/mixture-of-experts.md.");
  settings.add("moe.balance_loss", &e.balance_loss,
               "Weight of the load-balance loss, which draws tokens to experts that have few; -1: "
               "router_aux_loss_coef of the model's config.json.",
               between(-1, 1e6));
  settings.add("moe.z_loss", &e.z_loss,
               "Weight of the router's z-loss, which keeps its logits small.", between(0, 1e6));
  settings
      .add("moe.capacity_factor", &e.capacity_factor,
           "Tokens that an expert takes of a micro-batch at most, over an even share (rounded up): "
           "the first in their order; the others go without this expert, and are counted. 0: it "
           "takes all that come. Evaluation and generation always take all.",
           between(0, 1e6))
      .fixed();
  settings.known_elsewhere_as("moe.balance_loss",
                              {"router_aux_loss_coef", "moe_aux_loss_coeff", "aux_loss_coef"});
  settings.known_elsewhere_as("moe.z_loss", {"moe_z_loss_coeff", "router_z_loss_coef"});
  settings.known_elsewhere_as("moe.capacity_factor",
                              {"moe_expert_capacity_factor", "capacity_factor"});
}

nn::ExpertShape expert_shape(const ModelSettings& m, std::int64_t intermediate_size) {
  const nn::Family& family = nn::find_family(m.family, "model.family");
  if (!family.has_experts) return {};
  const bool has_own_width = family.has_expert_width && m.moe_intermediate_size != 0;
  return {.num_experts = m.num_experts != 0 ? m.num_experts : 8,
          .top_k = m.num_experts_per_tok != 0 ? m.num_experts_per_tok : 2,
          .intermediate_size = has_own_width ? m.moe_intermediate_size : intermediate_size,
          .normalize = m.norm_topk_prob,
          .balance_loss = 0.001};  // transformers' default
}

nn::ExpertOptions expert_options(const ExpertSettings& e, const nn::ModelConfig& model) {
  if (model.experts.num_experts > 0) {
    if (e.balance_loss < 0 && e.balance_loss != -1) {
      throw user_error(
          "moe.balance_loss is {}: give a weight that is not negative, or -1 for the model's own",
          e.balance_loss);
    }
    return {e.balance_loss, e.z_loss, e.capacity_factor};
  }
  const ExpertSettings unset;
  const auto refuse = [&](const char* key, double value, double default_value) {
    if (value == default_value) return;
    throw user_error("{} is {} and the model, of the family {}, has no experts; remove it", key,
                     value, model.family);
  };
  refuse("moe.balance_loss", e.balance_loss, unset.balance_loss);
  refuse("moe.z_loss", e.z_loss, unset.z_loss);
  refuse("moe.capacity_factor", e.capacity_factor, unset.capacity_factor);
  return {};
}

}  // namespace atl::train
