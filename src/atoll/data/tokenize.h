#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "atoll/data/corpus.h"
#include "atoll/data/tokenize_options.h"
#include "atoll/text/tokenizer.h"

namespace atl::data {

/// What tokenize_corpus made.
struct TokenizeResult {
  std::uint64_t bytes = 0;  ///< of all files
  std::uint64_t num_files = 0;
  std::int64_t train_tokens = 0;
  std::int64_t held_out_tokens = 0;
  std::int64_t train_documents = 0;
  std::int64_t held_out_documents = 0;
  std::int64_t empty_documents = 0;  ///< lines of JSONL that hold no text; they give no token
  std::string hash;                  ///< CorpusManifest::hash in hexadecimal
};

/// Turns files into a corpus directory. Documents are cut into blocks of lines and every
/// 1/held_out-th block is held out; what is left of a document on either side of such a block
/// counts as a document of its own, so no training window reads across a hole unmarked. Each
/// begins with Tokenizer::tokens_before() and ends with tokens_after() and end_of_text(), as far as
/// there are such, but what a chat template writes, which has them. Text that spells a special
/// token is encoded as text. docs/data-format.md says what files hold; a row is held out whole, and
/// all of it is tokenized at once. The same inputs and options give the same files. Throws
/// Error(kUser) for missing, empty or repeated inputs, a text too small for two splits, an output
/// that holds a corpus or another tokenizer, is in use or is read-only, and, with file and line or
/// byte, for what is not JSONL or not a token of the tokenizer; a corpus that stood there stays
/// unless all went well.
TokenizeResult tokenize_corpus(const TokenizeOptions& options, const Tokenizer& tokenizer,
                               const std::function<void(const TokenizeProgress&)>& progress = {});

/// The tokens of options.inputs in memory, with their documents and loss mask, all of them in one
/// split: text to evaluate. Reads the inputs as tokenize_corpus does and throws the same errors;
/// output and held_out are not looked at.
TokenVector tokenize_in_memory(const TokenizeOptions& options, const Tokenizer& tokenizer);

/// Calls fn with the text of options.inputs, in pieces that nothing is to be merged across: whole
/// text files, what each line of JSONL says. To train a tokenizer on. Throws as tokenize_corpus
/// does, and Error(kUser) for a .bin file, which holds no text.
void for_each_text(const TokenizeOptions& options, const std::function<void(std::string_view)>& fn);

/// The files of text that were asked for.
struct TextFiles {
  std::vector<std::filesystem::path> files;
  std::vector<std::string> left_out;  ///< a sentence on each directory with files of other endings
};

/// The files that `inputs` mean: files as given, and those under directories that is_searched_for()
/// (text, rows, and those compressed), sorted by path. Throws Error(kUser) for one that does not
/// exist, is named twice, or holds no such file.
TextFiles find_text_files(const std::vector<std::filesystem::path>& inputs);

}  // namespace atl::data
