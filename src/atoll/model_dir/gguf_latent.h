#pragma once

// DeepSeek's products of the latent vector in GGUF: llama.cpp keeps the keys' and the values'
// apart, head by head, the keys' transposed, so that scores can be made of the latent vectors
// themselves.

#include <vector>

#include "atoll/ckpt/safetensors/float_rows.h"
#include "atoll/nn/latent/latent_shape.h"

namespace atl::model_dir {

/// "blk.3.attn_kv_b.weight", of (heads (content_dim + value_dim), kv_rank), as
/// "blk.3.attn_k_b.weight", (heads, kv_rank, content_dim), and "blk.3.attn_v_b.weight",
/// (heads, value_dim, kv_rank). Throws Error(kUser) naming the tensor where its shape does not fit.
std::vector<ckpt::FloatRows> split_key_value(const ckpt::FloatRows& key_value,
                                             const nn::LatentShape& shape);
/// The reverse. Throws Error(kDamaged) naming a tensor where the two do not fit together.
ckpt::FloatRows join_key_value(const ckpt::FloatRows& keys, const ckpt::FloatRows& values);

}  // namespace atl::model_dir
