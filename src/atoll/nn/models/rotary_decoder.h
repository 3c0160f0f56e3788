#pragma once

// The decoder that Llama began and Mistral and Qwen vary: RMSNorm before each branch, rotary
// positions, grouped-query attention, SwiGLU. A family's file says what it adds, leaves out or has
// in another form.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/nn/mlp.h"
#include "atoll/nn/model.h"

namespace atl::nn {

class ConfigReader;
struct ExpertNames;
struct LatentShape;

/// What transformers takes for fields that a config.json leaves out.
struct DecoderDefaults {
  std::int64_t max_positions = 2048;
  std::int64_t num_kv_heads = 0;  ///< 0: as many as query heads
  std::int64_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads
  double norm_eps = 1e-6;
  const char* norm_eps_field = "rms_norm_eps";
  double rope_theta = 10000;
  double local_rope_theta = 0;  ///< of layers with a window, where that is another
  double rotary_part = 1;       ///< of each head's elements, where config.json may say so
  bool tie_embeddings = false;
  const char* activation_field = "hidden_act";
  const char* activation = "silu";  ///< the one that the family has
};

/// How a family's blocks differ from Llama's. Names are those within a block; null: there is none.
struct DecoderForm {
  // Names outside of blocks, what stands before a block's number, and the attention's module.
  const char* embedding = "model.embed_tokens";
  const char* block = "model.layers.";
  const char* final_norm = "model.norm";
  const char* head = "lm_head";
  const char* attention = "self_attn.";
  const char* attention_out = "o_proj";  ///< within the attention's module
  const char* attention_norm = "input_layernorm";
  const char* attention_out_norm = nullptr;  ///< of what the attention adds to the stream
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_out_norm = nullptr;
  const char* qkv = nullptr;  ///< one matrix: queries, keys and values, as "self_attn.qkv_proj"
  /// `qkv` has each head's query, key and value one after the other: see SelfAttention::Options.
  bool qkv_by_head = false;
  bool attention_sinks = false;  ///< "sinks" in the attention's module, one for each head
  /// Attention and MLP of a block read the same x, and their sum is added to it.
  bool parallel_residual = false;
  const char* gate_up = nullptr;  ///< one matrix: gate and up, as "mlp.gate_up_proj"
  double norm_offset = 0;         ///< see ops::RmsScale; a weight then starts at 1 - norm_offset
  bool layer_norm = false;        ///< norms of rows are LayerNorm, with a bias each
  /// With config.qk_norm: all query heads of a row have one norm, and all key heads.
  bool qk_norm_of_rows = false;
  /// An MLP without a gate: "mlp.c_fc", `gelu`, and `mlp_down`.
  const char* plain_mlp = nullptr;
  ops::Gelu gelu = ops::Gelu::kTanh;
  const char* mlp_down = "mlp.down_proj";
  Glu glu = Glu::kSwiglu;
  const ExpertNames* experts = nullptr;  ///< of blocks with experts
  /// Attention is by a latent vector: see models/latent_parts.h. Null: it is not.
  const LatentShape* latent = nullptr;
  ops::RotaryPairs rotary_pairs = ops::RotaryPairs::kHalves;
};

/// Reads and checks the fields that all these families have; `origin` names the file in errors. The
/// family then reads its own, and calls reader.finish().
ModelConfig read_decoder(ConfigReader& reader, const std::string& origin, const char* family,
                         const DecoderDefaults& defaults);

/// Reads Qwen's "use_sliding_window", "sliding_window", "max_window_layers" and "layer_types" into
/// `config`; the last, where it is there, decides alone, as in transformers.
void read_windows_by_layer(ConfigReader& reader, ModelConfig& config);
/// Reads "layer_types" into windowed_layers when it is there. Throws Error(kUser) when it does not
/// name `config`'s layers one by one, or names a window that `config` does not have.
void read_layer_types(ConfigReader& reader, ModelConfig& config);

/// The config.json of a new model: the common fields and those of `own`, a JSON object's text.
std::string decoder_json(const ModelConfig& config, const char* architecture, std::string_view own);
/// The fields read_windows_by_layer reads, as such a text.
std::string windows_by_layer_json(const ModelConfig& config);

/// Builds Llama's layers; biases, norms, windows and scales as `config` says.
std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options);
/// The same in another form.
std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const DecoderForm& form);

}  // namespace atl::nn
