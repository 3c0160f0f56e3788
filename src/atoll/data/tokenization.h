#pragma once

// The walk of tokenize_corpus through its files: internal to this folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/bin_tokens.h"
#include "atoll/data/bytes/document_stream.h"
#include "atoll/data/bytes/text_window.h"
#include "atoll/data/corpus_writer.h"
#include "atoll/data/input_format.h"
#include "atoll/data/jsonl/jsonl_line.h"
#include "atoll/data/text_blocks.h"
#include "atoll/data/tokenize_options.h"
#include "atoll/text/tokenizer.h"

namespace atl::data {

/// Renders the messages of a line with options.render_chat. Throws Error naming `path` and the line
/// when there is none, when it fails, or when it gives no text.
std::vector<RenderedChat> render_line(const TokenizeOptions& options, const JsonlLine& line,
                                      const std::string& path);

/// Encodes files, document after document, into a sink; chooses what is held out.
class Tokenization {
 public:
  /// Everything but `report`, which is called after each block, must outlive this. Blocks that can
  /// be held out have at most `block_bytes` bytes.
  Tokenization(DocumentSink& sink, const Tokenizer& tokenizer, const TokenizeOptions& options,
               std::uint64_t block_bytes, TokenizeProgress& progress, std::function<void()> report);

  /// A whole file. Throws Error naming it.
  void add_file(const std::filesystem::path& path);
  /// To be called behind the last file. Warns of rows that teach nothing, and of messages that
  /// spell special tokens; throws Error(kUser) when no row teaches anything.
  void finish() const;
  /// Lines of JSONL so far that hold no text.
  std::int64_t empty_documents() const { return empty_documents_; }

 private:
  void add_text_file(const std::filesystem::path& path);
  // One of the documents of the window's file.
  void add_document(DocumentStream& document, const TextWindow& window);
  void add_rows(const std::filesystem::path& path, InputFormat format);
  void add_line(const JsonlLine& line, const std::string& path);
  // A line with messages; each text of them is a document.
  void add_messages(const JsonlLine& line, const std::string& path);
  // Counts a row.
  void count_loss(const JsonlLine& line, const std::string& path, bool has_loss);
  // Counts a row of messages, one of which spells a special token.
  void count_spelled(const JsonlLine& line, const std::string& path, const RenderedChat& chat);
  // A line without messages.
  void encode_line(const JsonlLine& line);
  void add_bin(const BinTokens& tokens);
  Split choose_split(std::size_t bytes);
  void append(Split split);  // tokens_ and, when it has any, mask_
  // With the tokens that stand round a document of plain text; before a prompt they have no loss.
  void begin_document(Split split, bool has_prompt);
  void end_document(Split split);
  void advance(std::uint64_t bytes_done);
  // Of tokenization_pairs.cpp: rows that compare answers.
  void add_pairs(const std::filesystem::path& file, InputFormat format);
  void add_pair(const PreferenceRow& row, const std::string& second, const std::string& path);
  void encode_answer(const JsonlLine& line, const std::string& path, std::size_t& bytes);
  static std::string unrelated_answer(const PreferenceRow& row, const PreferenceRow& other,
                                      const std::string& path);
  void skip_pair(const PreferenceRow& row, const std::string& path, const std::string& why);
  void finish_pairs() const;

  DocumentSink& sink_;
  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  TokenEncoder encoder_;
  std::vector<std::int32_t> beginning_;  // of a document of plain text
  std::vector<std::int32_t> ending_;     // with the end of text, once
  HeldOutStride stride_;
  std::uint64_t block_bytes_;
  TokenizeProgress& progress_;
  std::function<void()> report_;
  std::int64_t empty_documents_ = 0;
  std::int64_t rows_ = 0;               // of JSONL, with text
  std::int64_t rows_without_loss_ = 0;  // among them
  std::string first_without_loss_;      // the first's file, line and roles
  std::string remedy_;                  // for that one
  std::int64_t conversations_ = 0;      // among the rows
  std::int64_t spelling_ = 0;           // conversations with a message that spells a special token
  std::string first_spelling_;          // the first's token, file and line, and what comes of it
  bool has_other_documents_ = false;    // than rows
  std::int64_t pairs_ = 0;              // rows that compare answers
  std::int64_t idle_pairs_ = 0;         // among them, those that teach nothing
  std::string first_idle_;              // the first's file, line and reason
  std::set<std::string> told_;          // how rows of other programs are read
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace atl::data
