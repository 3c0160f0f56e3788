#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "atoll/ckpt/gguf/ggml_types.h"
#include "atoll/ckpt/hf/weights.h"

namespace atl::model_dir {

/// How export_hf writes.
struct HfExportOptions {
  /// Of every parameter; nothing: as the files were that the model came from.
  std::optional<Dtype> dtype;
  /// Nothing: as the source is cut, or kDefaultShardBytes where tensors change or the source is a
  /// checkpoint, which is cut by the ranks that wrote it.
  std::optional<std::uint64_t> shard_bytes;
  /// Name to content: written in place of the source's files of these names.
  std::map<std::string, std::string> files;
};

/// Writes the model of a directory (a checkpoint is one) as the Hugging Face directory `to`, whole
/// or not at all. With neither option given, and a source that is not a checkpoint of another
/// dtype's model, files are copied byte for byte; else tensors are converted one at a time, buffers
/// that are no parameters left out, and config.json's dtype follows. Other files travel unread,
/// weights in other formats and a run's own state do not. Throws Error(kUser) naming what cannot be
/// written, as values beyond f16.
void export_hf(const std::filesystem::path& from, const std::filesystem::path& to,
               const HfExportOptions& options);

/// What an export as GGUF has to say.
struct GgufExport {
  std::int64_t context_length = 0;
  bool window_cuts_context = false;  ///< context_length is the model's attention window
};

/// Writes the model of a directory as the GGUF file `to`. `type` is that of the matrices (nothing:
/// of the files the model came from, f32, f16 or bf16); vectors and position embeddings stay f32,
/// as llama.cpp wants them. Throws Error(kUser) naming file and field or tensor for what llama.cpp
/// would compute otherwise, and when `to` is there already.
GgufExport export_gguf(const std::filesystem::path& from, const std::filesystem::path& to,
                       std::optional<ckpt::GgmlType> type);

}  // namespace atl::model_dir
