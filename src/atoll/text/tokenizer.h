#pragma once

// Text to token ids and back, as a Hugging Face `tokenizer.json` or a SentencePiece
// `tokenizer.model` says. The way of a text: added tokens are cut out -> normalizer ->
// pre-tokenizer (words) -> model (BPE and others) -> ids.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/encode_options.h"

namespace atl {

namespace text {
struct Engine;
struct TokenizerSpec;
struct EncoderState;
}  // namespace text

/// What decoding does about special tokens.
struct DecodeOptions {
  /// True: special tokens leave no text.
  bool skip_special = false;
};

/// A tokenizer read from a file, or made here. Immutable, so any number of threads may use one;
/// copies share the same tables.
class Tokenizer {
 public:
  /// Reads a `tokenizer.json`; `origin` is its path for messages. Throws Error(kDamaged) for a
  /// malformed one, Error(kUser) for one that asks for something atoll does not do.
  static Tokenizer from_json(std::string_view tokenizer_json, std::string_view origin);
  /// Reads the content of a file named "tokenizer.json" or "tokenizer.model" (SentencePiece).
  /// Throws as from_json, and Error(kUser) for another name.
  static Tokenizer from_bytes(std::string_view content, std::string_view file_name,
                              std::string_view origin);
  /// Reads a file (SentencePiece if its name ends in .model), or the tokenizer.json, else the
  /// tokenizer.model, inside a directory. The files beside it say end_of_text() and, of a
  /// tokenizer.model, what add_special adds (text/tokenizer_config.h). Throws as from_json, and
  /// Error(kUser) when there is none, a file beside it is damaged, or it lacks a token to be added.
  static Tokenizer load(const std::filesystem::path& path);
  /// Builds one from its parts, as the trainer makes them; to_json() writes them out.
  static Tokenizer from_spec(const text::TokenizerSpec& spec);

  /// The same with these as special tokens too; it is a tokenizer.json. A text that is a token
  /// already keeps its id; the others get the next ids, in their order. What goes round a text
  /// stays. Throws Error(kUser) for a text that is empty, no UTF-8, or there twice, and as
  /// to_json().
  Tokenizer with_special_tokens(std::span<const std::string> tokens) const;

  /// What its file is called in a model's directory: "tokenizer.json" or "tokenizer.model".
  const std::string& file_name() const;
  /// That file: byte for byte what was read, or what the trainer made.
  const std::string& file_content() const;
  /// The tokenizer as a tokenizer.json: file_content(), or for a tokenizer.model one that gives the
  /// same ids for every text. Throws Error(kUser) naming what stands in the way of that.
  std::string to_json() const;

  /// The ids of `text`. For many texts keep a TokenEncoder: it remembers words. Throws Error(kUser)
  /// for a character that has no token where the tokenizer has none for unknown ones, and for
  /// `options.literal` in a text that the tokenizer changes before it looks for special tokens.
  std::vector<std::int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The bytes of `ids`: exactly the bytes that were encoded, even where those are not UTF-8,
  /// unless the tokenizer normalizes text or has no token for some of it. Throws Error(kUser) for
  /// an id outside the vocabulary.
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;

  /// One more than the highest id: the rows that an embedding needs.
  std::int32_t vocab_size() const;
  /// The id of a token as the file spells it ("Ġthe", "<|endoftext|>"), if there is one.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The bytes a token stands for inside a text (" the"; at its start decode() may drop a space);
  /// valid as long as a copy of the Tokenizer is. Throws Error(kUser) for an id outside the
  /// vocabulary.
  std::string_view token_bytes(std::int32_t id) const;
  /// The first special token that is spelled in `text` at or behind byte `start`: its bytes
  /// [first, second), or nothing.
  std::optional<std::pair<std::size_t, std::size_t>> find_special(std::string_view text,
                                                                  std::size_t start) const;
  /// True for the ids of special added tokens, and of a tokenizer.model's control pieces.
  bool is_special(std::int32_t id) const;
  /// What EncodeOptions::add_special puts before a text: what the file's TemplateProcessing says;
  /// for a tokenizer.model what tokenizer_config.json does, else its bos piece if it has one.
  const std::vector<std::int32_t>& tokens_before() const;
  /// What it puts after a text: likewise, but for a tokenizer.model nothing unless told to.
  const std::vector<std::int32_t>& tokens_after() const;
  /// The token that ends a document: what files beside the tokenizer say (read_text_frame); else
  /// a tokenizer.model's eos piece; else the first special token with one of the usual names
  /// (<|endoftext|>, <|end_of_text|>, </s>, <eos>, ...); else the only special token there is.
  std::optional<std::int32_t> end_of_text() const;

 private:
  friend class TokenEncoder;
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const text::Engine> engine);

  // Shared: the tables are large and immutable, and encoders may outlive the Tokenizer they came
  // from.
  std::shared_ptr<const text::Engine> engine_;
};

/// Encodes many texts fast: keeps a bounded cache of words and its working memory, so that a call
/// allocates nothing but the growth of `out`. One per thread.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer);
  ~TokenEncoder();
  TokenEncoder(TokenEncoder&&) noexcept;
  TokenEncoder& operator=(TokenEncoder&&) noexcept;

  /// Appends the ids of `text` to `out`.
  void encode(std::string_view text, std::vector<std::int32_t>& out, EncodeOptions options = {});
  /// Appends the ids of the next part of a text that is too long to be encoded at once; special
  /// tokens spelled in it are text. Until the `last` part no other text may be encoded. What goes
  /// before a text goes before the first part alone. Of a tokenizer.model all calls together give
  /// the ids of the whole text, wherever it is cut, and some ids come with a later part; of a
  /// tokenizer.json they do where no token and no pattern reaches over the cuts.
  void encode_part(std::string_view part, bool last, std::vector<std::int32_t>& out);

 private:
  friend class Tokenizer;
  TokenEncoder(std::shared_ptr<const text::Engine> engine, int log2_cache_slots);

  std::shared_ptr<const text::Engine> engine_;  // shared with the Tokenizer; see there
  std::unique_ptr<text::EncoderState> state_;
};

}  // namespace atl
