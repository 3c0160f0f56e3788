#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "atoll/data/corpus.h"
#include "atoll/data/text_blocks.h"
#include "atoll/text/tokenizer.h"

namespace atl::data {

/// What to make a corpus of, and how.
struct TokenizeOptions {
  std::vector<std::filesystem::path> inputs;  ///< text files, or directories searched for *.txt
  std::filesystem::path output;               ///< made if it is not there
  DocumentMode documents = DocumentMode::kFile;
  double held_out = 0.05;         ///< fraction of the bytes, in [0, 0.5]; 0: no held-out split
  std::uint64_t block_bytes = 0;  ///< of the blocks held out; 0: by the size of the text
  std::uint64_t shard_tokens = std::uint64_t{1} << 25;  ///< tokens in a shard, at most
  bool overwrite = false;                               ///< replace the corpus that is there
};

/// How far tokenize_corpus is; given to its callback after each block.
struct TokenizeProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  std::uint64_t tokens = 0;
};

/// What tokenize_corpus made.
struct TokenizeResult {
  std::uint64_t bytes = 0;  ///< of text read
  std::uint64_t num_files = 0;
  std::int64_t train_tokens = 0;
  std::int64_t held_out_tokens = 0;
  std::int64_t train_documents = 0;
  std::int64_t held_out_documents = 0;
};

/// Turns text files into a corpus directory. Documents are cut into blocks of lines and every
/// 1/held_out-th block is held out; what is left of a document on either side of such a block
/// counts as a document of its own, so no training window reads across a hole unmarked. The
/// tokenizer's end-of-text token, if it has one, follows each document. Text that spells a special
/// token is encoded as text. The same inputs and options give the same files. Throws Error(kUser)
/// for missing, empty or repeated inputs, a text too small for two splits, and an output that holds
/// a corpus or another tokenizer.json, is in use or is read-only; a corpus that stood there stays
/// unless all went well.
TokenizeResult tokenize_corpus(const TokenizeOptions& options, const Tokenizer& tokenizer,
                               const std::function<void(const TokenizeProgress&)>& progress = {});

/// The text files that `inputs` mean: files as given, *.txt files under directories sorted by path.
/// Throws Error(kUser) for one that does not exist, is named twice, or holds no text file.
std::vector<std::filesystem::path> find_text_files(
    const std::vector<std::filesystem::path>& inputs);

}  // namespace atl::data
