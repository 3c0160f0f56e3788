#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "atoll/ckpt/hf/weights.h"

namespace atl::model_dir {

/// Writes a GGUF file's model as a Hugging Face directory `out`, whole or not at all: weights
/// dequantised to `dtype`, config.json, tokenizer files. Without a dtype weights stay as the file
/// has them: blocks of integers as bytes, which "quantization_config" of config.json lists with
/// their types (ckpt/quantised reads them; other programs do not). Holds one tensor's row at a time
/// (of GPT-2, one tensor). Throws Error(kUser) naming file and tensor or key for what atoll does
/// not read or compute, and when tensors are missing, too many, or of another shape than the
/// model's; Error(kDamaged) for a damaged file.
void import_gguf(const std::filesystem::path& file, const std::filesystem::path& out,
                 std::optional<Dtype> dtype, std::uint64_t shard_bytes = ckpt::kDefaultShardBytes);

}  // namespace atl::model_dir
