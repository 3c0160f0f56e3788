#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "atoll/ckpt/gguf/imatrix.h"
#include "atoll/ckpt/gguf/mixes.h"
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

/// How export_gguf writes.
struct GgufExportOptions {
  /// Of the matrices; nothing: of the files the model came from, f32, f16 or bf16.
  std::optional<ckpt::GgufMix> mix;
  /// Which columns of the matrices matter, for K types; null: none is known. Must live until the
  /// export is done.
  const ckpt::Imatrix* imatrix = nullptr;
};

/// What an export as GGUF has to say.
struct GgufExport {
  std::int64_t context_length = 0;
  bool window_cuts_context = false;  ///< context_length is the model's attention window
  std::int64_t other_matrices = 0;   ///< whose rows do not fill the blocks of the type asked for
  std::int64_t no_importance = 0;    ///< K matrices inside blocks that the imatrix lacks
};

/// Writes the model of a directory as the GGUF file `to`, with as many threads as there are CPUs.
/// Vectors and position embeddings stay f32, as llama.cpp wants them. Logs one line where matrices
/// get another type than was asked for. Throws Error(kUser) naming file and field or tensor for
/// what llama.cpp would compute otherwise, for an importance matrix of another model, and when `to`
/// is there already.
GgufExport export_gguf(const std::filesystem::path& from, const std::filesystem::path& to,
                       const GgufExportOptions& options = {});

}  // namespace atl::model_dir
