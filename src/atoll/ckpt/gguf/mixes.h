#pragma once

// Which tensors of a GGUF file get which type. A mix such as Q4_K_M gives a few tensors more bits,
// those whose rounding a model feels most.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "atoll/ckpt/gguf/ggml_types.h"

namespace atl::ckpt {

/// What a file is made as: a plain type (f32, q8_0), or a mix with its name in llama.cpp.
struct GgufMix {
  std::string_view name;           ///< "Q4_K_M"
  GgmlType base = GgmlType::kF32;  ///< of the matrices that have no rule of their own; of
                                   ///< MXFP4_MOE, of experts' matrices, and the others are Q8_0
  std::uint32_t file_type = 0;     ///< "general.file_type", as llama.cpp numbers them
};

/// All that can be written, floats first, then from many bits to few.
std::span<const GgufMix> gguf_mixes();
/// The mix of this name, in any case. Throws Error(kUser) that lists all names.
GgufMix find_gguf_mix(std::string_view name);
/// The mix in which every matrix has this type. Throws Error(kInternal) when there is none.
GgufMix gguf_mix_of(GgmlType type);

/// The layer of a tensor inside a block: 3 of "blk.3.attn_v.weight"; nothing for the others.
std::optional<std::int64_t> gguf_layer(std::string_view tensor);

/// What a rule of a mix may ask of a tensor.
struct MixedTensor {
  std::string name;          ///< "blk.3.attn_v.weight"
  std::int64_t width = 0;    ///< elements of a row
  std::int64_t layers = 0;   ///< of the model
  bool is_head = false;      ///< output.weight, or token_embd.weight of a model that has no other
  std::int64_t experts = 0;  ///< of each block
};

/// The type of a matrix, and what it would have had.
struct MixedType {
  GgmlType type = GgmlType::kF32;
  /// The type whose blocks the rows do not fill, where there is one; `type` then is Q8_0, or f16
  /// where rows are no multiple of 32 either. (llama.cpp falls back to types of the first
  /// generation with a bit more, Q5_0 for Q4_K. Q8_0 costs 3 bits more and loses nothing.)
  std::optional<GgmlType> instead_of;
};

/// The type of a matrix in a mix.
MixedType type_in_mix(const GgufMix& mix, const MixedTensor& tensor);

}  // namespace atl::ckpt
