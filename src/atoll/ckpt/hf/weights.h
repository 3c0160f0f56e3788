#pragma once

// The weights of a Hugging Face directory, written: one file, or shards with their index.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "atoll/ckpt/safetensors/writer.h"

namespace atl::ckpt {

/// The shard size that Hugging Face's tools default to, 5 GB.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

/// "model-00001-of-00003.safetensors": file `number` (from 0) of `count` that hold what one file
/// `stem`.safetensors would; that name when `count` is 1.
std::string shard_name(std::string_view stem, std::size_t number, std::size_t count);

/// The text of an index: which file holds each tensor, and the bytes of all tensors.
std::string weights_index_json(const std::map<std::string, std::string>& file_of_tensor,
                               std::uint64_t total_bytes);

/// "5GB", "500MB", "1GiB", "100000": a number of bytes, GB being 10^9 and GiB 2^30. Throws
/// Error(kUser) naming `option` when it is none or 0.
std::uint64_t parse_bytes(std::string_view text, const std::string& option);

/// Writes model.safetensors, or, when the tensors take more than `shard_bytes`, shards named
/// model-00001-of-00003.safetensors and model.safetensors.index.json with `metadata.total_size`.
/// Tensors keep their order; one that is larger than a shard has one of its own. A tensor is
/// produced once and never held whole. Throws as write_safetensors.
void write_weights(const std::filesystem::path& directory, std::span<const TensorSource> sources,
                   std::uint64_t shard_bytes = kDefaultShardBytes);

/// `config_json` with its "dtype" (older: "torch_dtype") saying `dtype`; other fields stay, in
/// their order. Throws Error(kDamaged) naming `origin` when it is not a JSON object.
std::string with_dtype(const std::string& config_json, Dtype dtype, const std::string& origin);

}  // namespace atl::ckpt
