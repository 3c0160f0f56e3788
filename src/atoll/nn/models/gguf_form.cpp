#include "atoll/nn/models/gguf_form.h"

#include <algorithm>
#include <string_view>

namespace atl::nn {

namespace {

constexpr GgufTensorName kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

// llama.cpp's llama takes every bias that config.json can ask for.
constexpr GgufTensorName kLlama[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", true, GgufOrder::kQueryRotary},
    {"attn_k", "self_attn.k_proj", true, GgufOrder::kKeyRotary},
    {"attn_v", "self_attn.v_proj", true},
    {"attn_output", "self_attn.o_proj", true},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj", true},
    {"ffn_up", "mlp.up_proj", true},
    {"ffn_down", "mlp.down_proj", true},
};

}  // namespace

bool has_latent(const GgufForm& form) {
  return std::any_of(form.inside.begin(), form.inside.end(), [](const GgufTensorName& name) {
    return std::string_view(name.gguf) == "attn_kv_b";
  });
}

double take_gguf_number(GgufSettings& from, const std::string& key, double fallback) {
  const auto found = from.find(key);
  if (found == from.end()) return fallback;
  double number = fallback;
  if (const auto* value = std::get_if<double>(&found->second)) number = *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) {
    number = static_cast<double>(*value);
  }
  from.erase(found);
  return number;
}

std::span<const GgufTensorName> decoder_gguf_outside() {
  return kOutside;
}

std::span<const GgufTensorName> llama_gguf_inside() {
  return kLlama;
}

}  // namespace atl::nn
