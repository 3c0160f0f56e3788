#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/ckpt/gguf/ggml_types.h"
#include "atoll/ckpt/safetensors/float_rows.h"
#include "atoll/ckpt/safetensors/writer.h"

namespace atl::ckpt {

/// A metadata value to be written; the C++ type gives the kind.
using GgufField =
    std::variant<bool, std::uint32_t, std::int32_t, float, std::string, std::vector<std::string>,
                 std::vector<std::int32_t>, std::vector<float>>;

/// Metadata in the order in which it is written.
using GgufFields = std::vector<std::pair<std::string, GgufField>>;

/// A tensor to be written: rows that are encoded as `type` while they are read.
struct GgufSource {
  FloatRows rows;
  GgmlType type = GgmlType::kF32;
};

/// Writes a GGUF file of version 3 with alignment 32, atomically (see AtomicFile). Holds one row at
/// a time, besides what a source's reader holds. Throws Error(kUser) naming the tensor when its
/// rows are no whole blocks of its type or hold what that type cannot.
WrittenFile write_gguf(const std::filesystem::path& path, const GgufFields& fields,
                       std::span<const GgufSource> sources);

}  // namespace atl::ckpt
