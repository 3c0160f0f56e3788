#pragma once

// What GGUF calls the tensors that Hugging Face's files keep, and how the two lay them out.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl::ckpt {

/// How a tensor's elements lie in a GGUF file, against Hugging Face's.
enum class GgufOrder {
  kSame,
  kTransposed,   ///< GPT-2's Conv1D weights: (out, in) in GGUF, (in, out) in Hugging Face's
  kQueryRotary,  ///< rows of each query head in pairs, see gguf_row
  kKeyRotary,    ///< rows of each key head likewise
};

/// One tensor under both names.
struct GgufName {
  std::string gguf;  ///< "blk.0.attn_q.weight"
  std::string hf;    ///< "model.layers.0.self_attn.q_proj.weight"
  GgufOrder order = GgufOrder::kSame;
};

/// The architectures that atoll reads and writes as GGUF: llama (Mistral is one), qwen2, qwen3,
/// gpt2. Lists them, for messages.
std::string gguf_architectures();
bool is_gguf_architecture(std::string_view architecture);

/// The tensor that GGUF calls `name`, if a model of this architecture has it.
std::optional<GgufName> from_gguf_name(std::string_view architecture, std::string_view name);
/// The tensor that Hugging Face calls `name`, if a model of this architecture has it.
std::optional<GgufName> from_hf_name(std::string_view architecture, std::string_view name);

/// Where row `row` of Hugging Face's weight stands in a llama file. Hugging Face rotates the first
/// half of a head against the second, row j with row j + head_dim / 2; llama.cpp's "llama" rotates
/// neighbours, so that those two are rows 2j and 2j + 1.
std::int64_t gguf_row(std::int64_t row, std::int64_t head_dim);
/// The reverse of gguf_row.
std::int64_t hf_row(std::int64_t row, std::int64_t head_dim);

}  // namespace atl::ckpt
