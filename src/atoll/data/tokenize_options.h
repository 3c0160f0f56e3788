#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/fields.h"
#include "atoll/data/jsonl/preference_rows.h"
#include "atoll/data/loss_spans.h"
#include "atoll/data/text_blocks.h"

namespace atl::data {

/// Writes messages with a chat template: as one text, or as several that are documents of their
/// own.
using RenderChat = std::function<std::vector<RenderedChat>(std::string_view messages_json,
                                                           std::string_view variables_json)>;

/// What to make a corpus of, and how.
struct TokenizeOptions {
  /// Files, or directories that are searched (find_text_files). What a file is, its ending and
  /// begin say (input_format): rows of several formats, tokens of nanoGPT or llm.c, text.
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;  ///< made if it is not there
  DocumentMode documents = DocumentMode::kFile;
  double held_out = 0.05;         ///< fraction of the bytes, in [0, 0.5]; 0: no held-out split
  std::uint64_t block_bytes = 0;  ///< of the blocks held out; 0: by the size of the text
  std::uint64_t shard_tokens = std::uint64_t{1} << 25;  ///< tokens in a shard, at most
  bool overwrite = false;                               ///< replace the corpus that is there
  /// CorpusManifest::hash in hexadecimal that must come of it; empty: any. With another one nothing
  /// is replaced, and TokenizeResult::hash tells.
  std::string expected_hash;
  /// Renders the "messages" of a JSONL line, a JSON array, with a chat template, and the variables
  /// that the line has for it, a JSON object or empty. Its errors get the file and line put before
  /// them. Without it, a line with messages is an error.
  RenderChat render_chat;
  Fields fields = {};  ///< what the keys of JSONL are called
  /// What lines of JSONL compare; with another value than kNone there may be no other lines.
  PairKind pairs = PairKind::kNone;
  /// True: as programs did that did not record what stands round a document
  /// (CorpusManifest::frame).
  bool as_older_programs = false;
};

/// How far tokenize_corpus is; given to its callback after each block.
struct TokenizeProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  std::uint64_t tokens = 0;
};

}  // namespace atl::data
