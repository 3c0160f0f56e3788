#pragma once

// LoRA adapters as llama.cpp keeps them: one GGUF file with "general.type" adapter, as its
// convert_lora_to_gguf.py writes it.

#include <filesystem>
#include <optional>

#include "atoll/ckpt/gguf/mixes.h"
#include "atoll/model_dir/model_path.h"
#include "atoll/tensor/spec.h"

namespace atl::model_dir {

/// Writes an adapter as the GGUF file `to`. For each matrix NAME of the base model in llama.cpp's
/// names and order of rows there is NAME.lora_a (rank, in) and NAME.lora_b (out, rank); of
/// token_embd NAME.lora_a (tokens, rank) and NAME.lora_b (hidden, rank); of experts stacks of
/// these. llama.cpp computes W + (alpha / rank) B A with one alpha: where modules have scales of
/// their own, their B is multiplied. `mix`: F32, F16, BF16 or Q8_0; nothing: the type of the
/// adapter's file. Rows that are no multiple of 32 are F16 in Q8_0. Throws Error(kUser) naming file
/// and tensor or field for what such a file cannot hold, for another type, and when `to` is there
/// already.
void export_adapter_gguf(const ModelPath& adapter, const std::filesystem::path& to,
                         const std::optional<ckpt::GgufMix>& mix);

/// Whether a GGUF file says that it is an adapter. Throws as ckpt::GgufFile.
bool is_gguf_adapter(const std::filesystem::path& file);

/// Writes such a file as the PEFT directory `out`, whole or not at all, in `dtype`. `base` is the
/// directory of the model that it adapts. Throws Error(kUser) naming file and tensor or key for an
/// adapter of another kind or of another model; Error(kDamaged) for a damaged file.
void import_adapter_gguf(const std::filesystem::path& file, const std::filesystem::path& base,
                         const std::filesystem::path& out, Dtype dtype);

}  // namespace atl::model_dir
