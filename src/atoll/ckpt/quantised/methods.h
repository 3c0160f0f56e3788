#pragma once

// One function for each method of quantisation; they share what is here.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "atoll/ckpt/hf/directory.h"
#include "atoll/ckpt/quantised/stored_matrix.h"

namespace atl::ckpt {

using StoredMatrices = std::map<std::string, StoredMatrix, std::less<>>;

/// What a method's function is given.
struct QuantisedSource {
  const HfDirectory& directory;
  const nlohmann::json& config;  ///< "quantization_config"
  std::string origin;            ///< the config.json
};

/// NF4, FP4 and int8, by the tensors that are there. Throws as QuantisedWeights; so do the others.
StoredMatrices read_bitsandbytes(const QuantisedSource& source);
/// 4 and 8 bits, versions 1 and 2.
StoredMatrices read_gptq(const QuantisedSource& source);
/// The gemm version.
StoredMatrices read_awq(const QuantisedSource& source);
/// What `atoll import --dtype=stored` writes: see model_dir/gguf_import.h.
StoredMatrices read_gguf_blocks(const QuantisedSource& source);
/// gpt-oss's experts: see mxfp4.cpp.
StoredMatrices read_mxfp4(const QuantisedSource& source);
/// DeepSeek V3's: see fp8_blocks.cpp.
StoredMatrices read_fp8_blocks(const QuantisedSource& source);

/// The bytes of tensor `name`, of `bytes` bytes. Throws Error(kDamaged) naming `weight`, the file
/// and the tensor where there is none, or one of another size.
std::span<const std::byte> part_of(const QuantisedSource& source, const std::string& weight,
                                   const std::string& name, std::size_t bytes);
/// A tensor of that dtype ("F32", "I32") and shape; throws as part_of.
std::span<const std::byte> typed_part(const QuantisedSource& source, const std::string& weight,
                                      const std::string& name, std::string_view dtype,
                                      std::span<const std::int64_t> shape);
/// The shape of a tensor of two dims that must be there; throws as part_of.
Shape matrix_shape(const QuantisedSource& source, const std::string& weight,
                   const std::string& name);
/// Throws Error(kDamaged) where a matrix has no elements, or more than 2^40: shapes come from
/// files, and products of them must not overflow.
void check_shape(const QuantisedSource& source, const std::string& weight, std::int64_t rows,
                 std::int64_t columns);

/// `value` rounded to a float dtype, as f32.
float rounded_to(Dtype dtype, float value);

}  // namespace atl::ckpt
