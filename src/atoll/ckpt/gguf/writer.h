#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
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
  /// Of each column, see encode(): empty; one row's; or one row's for each of several matrices of
  /// as many rows that the tensor is a stack of.
  std::vector<float> importance = {};
};

/// Writes a GGUF file of version 3 with alignment 32, atomically (see AtomicFile). Rows are read by
/// the caller's thread and encoded by `threads` (null: by the caller's); the bytes do not depend on
/// them. Holds 64 rows for each thread, besides what a source's reader holds. Throws Error(kUser)
/// naming the tensor when its rows are no whole blocks of its type or hold what that type cannot.
WrittenFile write_gguf(const std::filesystem::path& path, const GgufFields& fields,
                       std::span<const GgufSource> sources, ThreadPool* threads = nullptr);

}  // namespace atl::ckpt
