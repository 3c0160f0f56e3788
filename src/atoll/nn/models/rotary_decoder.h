#pragma once

// The decoder that Llama began and Mistral and Qwen vary: RMSNorm before each branch, rotary
// positions, grouped-query attention, SwiGLU. A family's file says what it adds or leaves out.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/nn/model.h"

namespace atl::nn {

class ConfigReader;
struct ExpertNames;

/// What transformers takes for fields that a config.json leaves out.
struct DecoderDefaults {
  std::int64_t max_positions = 2048;
  std::int64_t num_kv_heads = 0;  ///< 0: as many as query heads
  std::int64_t head_dim = 0;      ///< 0: hidden_size / num_attention_heads
  double norm_eps = 1e-6;
  double rope_theta = 10000;
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

/// Builds the layers; biases, norms and windows as `config` says.
std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options);
/// The same, with the experts that `config` has.
std::unique_ptr<Model> build_decoder(const ModelConfig& config, const BuildOptions& options,
                                     const ExpertNames& names);

}  // namespace atl::nn
