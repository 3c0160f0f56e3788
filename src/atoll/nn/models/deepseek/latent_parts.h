#pragma once

// Attention by a latent vector, with the names of DeepSeek's files.

#include <memory>
#include <string>

#include "atoll/nn/latent/latent_shape.h"
#include "atoll/nn/model.h"

namespace atl::nn {

class ConfigReader;
class TensorSplit;

/// Reads "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim" and "v_head_dim",
/// which are those of `defaults` when absent. Throws Error(kUser) naming the field for a size that
/// cannot be.
LatentShape read_latent(ConfigReader& reader, const LatentShape& defaults);
/// What `shape` means for config.heads, whose number is there, and config.rotary_dim.
void set_latent_heads(const LatentShape& shape, ModelConfig& config);

/// The shape of a model of DeepSeek's families.
LatentShape deepseek_latent(const ModelConfig& config);

/// The attention of block `index`, whose parameters' names begin with `at` ("model.layers.3.
/// self_attn."), with the heads that `split` gives this rank. The product that ends the branch
/// starts with `out_stddev`.
std::unique_ptr<Layer> make_latent_attention(const ModelConfig& config, const LatentShape& shape,
                                             const BuildOptions& options, const TensorSplit& split,
                                             const Constant* rope_table, const std::string& at,
                                             int index, double out_stddev);

}  // namespace atl::nn
