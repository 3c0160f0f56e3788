#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace atl::model_dir {

/// What an export does about a run's tokenizer.
struct ExportedTokenizer {
  /// Name to content; written in place of the run's own files of these names.
  std::map<std::string, std::string> files;
  /// One sentence on what transformers does otherwise with these files; empty: nothing.
  std::string note;
};

/// How transformers gives the ids that a run with a tokenizer.model alone has learnt: transformers
/// 5 reads such a file as byte pair encoding without its normalizer, and its first spaces otherwise
/// than the SentencePiece library. So a tokenizer.json with the same ids goes beside it, with a
/// tokenizer_config.json whose class takes it as it is; where no such file exists, a note says so.
/// Nothing for a checkpoint with a tokenizer.json.
ExportedTokenizer exported_tokenizer(const std::filesystem::path& checkpoint);

}  // namespace atl::model_dir
