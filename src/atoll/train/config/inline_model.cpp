#include "atoll/nn/models/family.h"
#include "atoll/train/config/config.h"
#include "atoll/train/config/experts.h"

namespace atl::train {

namespace {

std::int64_t default_intermediate_size(const ModelSettings& model) {
  if (!nn::find_family(model.family, "model.family").has_gate) return 4 * model.hidden_size;
  // 8/3: three matrices of SwiGLU then weigh as much as two of 4 x hidden (Shazeer 2020).
  constexpr std::int64_t kMultiple = 32;
  return (8 * model.hidden_size + 3 * kMultiple - 1) / (3 * kMultiple) * kMultiple;
}

}  // namespace

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
