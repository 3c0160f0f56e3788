#pragma once

// What GGUF calls the tensors that Hugging Face's files keep, and how the two lay them out.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/nn/models/family.h"

namespace atl::ckpt {

/// One tensor under both names. GGUF stacks the matrices of a block's experts in one tensor.
struct GgufName {
  std::string gguf;  ///< "blk.0.attn_q.weight"; "blk.0.ffn_up_exps.weight"
  /// "model.layers.0.self_attn.q_proj.weight"; of experts, with "*" for an expert's number where
  /// GGUF's name was looked up: "model.layers.0.mlp.experts.*.up_proj.weight".
  std::string hf;
  nn::GgufOrder order = nn::GgufOrder::kSame;
  std::optional<std::int64_t> expert = {};  ///< whose matrix Hugging Face's name is
};

/// The family that a file of this "general.architecture", with or without experts, is read as;
/// null: atoll reads no such.
const nn::Family* find_gguf_family(std::string_view architecture, bool has_experts);
/// The architectures that atoll reads from GGUF; lists them, for messages.
std::string gguf_architectures();

/// The tensor that GGUF calls `name`, if a model of this form has it. A row of the form whose GGUF
/// name ends in ".weight" has whole names: Hugging Face's has no such ending.
std::optional<GgufName> from_gguf_name(const nn::GgufForm& form, std::string_view name);
/// The tensor that Hugging Face calls `name`, if a model of this form has it; `name` may lack its
/// first part, as a base model's do: "wte.weight" for "transformer.wte.weight".
std::optional<GgufName> from_hf_name(const nn::GgufForm& form, std::string_view name);

/// Where row `row` of Hugging Face's weight stands in a llama file. Hugging Face rotates the first
/// half of a head against the second, row j with row j + head_dim / 2; llama.cpp's "llama" rotates
/// neighbours, so that those two are rows 2j and 2j + 1.
std::int64_t gguf_row(std::int64_t row, std::int64_t head_dim);
/// The reverse of gguf_row.
std::int64_t hf_row(std::int64_t row, std::int64_t head_dim);

/// Of a matrix with the queries, keys and values of `rows` / (3 head_dim) heads: where its row
/// `row` stands in GGUF, all queries before all keys before all values, if Hugging Face's file has
/// those of each head one after the other.
std::int64_t gguf_qkv_row(std::int64_t row, std::int64_t rows, std::int64_t head_dim);
/// The reverse of gguf_qkv_row.
std::int64_t hf_qkv_row(std::int64_t row, std::int64_t rows, std::int64_t head_dim);

}  // namespace atl::ckpt
