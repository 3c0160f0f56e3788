#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/sentence_piece/byte_trie.h"
#include "atoll/text/sentence_piece/charsmap.h"
#include "atoll/text/sentence_piece/sentence_piece_spec.h"

namespace atl::text {

/// Encodes as the SentencePiece library does (Kudo and Richardson 2018, "SentencePiece: A simple
/// and language independent subword tokenizer and detokenizer"), one difference apart: with
/// byte_fallback, bytes that are not UTF-8 become their byte pieces and so survive decoding, where
/// the library makes them U+FFFD. Without, they are U+FFFD here too, one for each byte.
class SentencePiece {
 public:
  /// Which part of a text that comes in parts is encoded; a whole one is both.
  struct Part {
    bool first = true;
    bool last = true;
  };
  /// Working memory of encode.
  struct Scratch {
    /// A part of the text: a character, or what characters have merged to. (BPE)
    struct Symbol {
      std::size_t begin;
      std::size_t size;  // 0: merged into the one before it
      std::int32_t previous, next;
      bool frozen;  // a user-defined piece
    };
    /// Two neighbours that make a piece. (BPE)
    struct Candidate {
      float score;
      std::int32_t left, right;
      std::size_t size;  // of both when it was queued; stale when that has changed
    };
    /// The best way to cut the text up to here. (Unigram)
    struct Path {
      float score = 0;
      std::int32_t id = -1;
      std::size_t begin = 0;  // of its last piece
      bool reached = false;
    };
    std::string raw;       // what the parts so far have held back
    std::string text;      // normalized, what of it is still to be cut
    std::string_view now;  // the beginning of `text` that is being cut
    bool has_begun = false;
    bool after_space = false;
    bool after_unknown = false;
    float score = 0;  // of all pieces before `text`. (Unigram)
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::unordered_map<std::int32_t, std::size_t> unused_halves;  // id -> size of its left half
    std::vector<Path> paths;
    std::vector<std::pair<std::string_view, std::int32_t>> pieces;  // the result, with ids
    std::vector<std::string_view> stack;
  };

  /// Throws Error(kDamaged), naming `origin`, for a charsmap that is none.
  SentencePiece(const SentencePieceSpec& spec, std::string_view origin);
  SentencePiece(const SentencePiece&) = delete;
  SentencePiece& operator=(const SentencePiece&) = delete;

  /// Appends the ids of a text, any bytes. Control pieces are never made. Of a text in parts, with
  /// one Scratch, the ids of all calls together are those of the whole; what depends on the parts
  /// to come waits for them.
  void encode(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out,
              Part part) const;

 private:
  // A stretch of text and what it becomes before it is cut into pieces.
  struct Normalized {
    std::size_t size;
    std::string_view text;
  };
  Normalized normalize_prefix(std::string_view text) const;
  std::string_view space() const { return spec_.escape_whitespaces ? kSpaceSymbol : " "; }
  // Appends to scratch.text; leaves about `hold` bytes at the end, whose way may depend on what
  // follows them. Returns the bytes it has taken.
  std::size_t normalize(std::string_view text, std::size_t hold, Scratch& scratch) const;
  bool begin_text(std::string_view& text, std::size_t hold, Scratch& scratch) const;
  // Where scratch.text can be cut in two without another result; 0 where nowhere.
  std::size_t last_border(const Scratch& scratch) const;
  void emit(Scratch& scratch, std::vector<std::int32_t>& out) const;

  void cut_bpe(Scratch& scratch) const;
  void queue(std::int32_t left, std::int32_t right, Scratch& scratch) const;
  void merge(Scratch& scratch) const;
  void emit_used(std::string_view piece, Scratch& scratch) const;
  void cut_unigram(Scratch& scratch) const;
  void relax_from(std::size_t begin, std::size_t char_size, Scratch& scratch) const;

  // The piece that is made from this text (normal, user-defined, unused), or -1.
  std::int32_t find(std::string_view piece) const;

  SentencePieceSpec spec_;  // pieces are kept for their types and scores
  CharsMap charsmap_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views of spec_'s pieces
  ByteTrie pieces_;                                         // of Unigram
  ByteTrie user_defined_;
  std::vector<std::int32_t> byte_ids_;
  std::int32_t unk_id_ = -1;
  std::size_t longest_piece_ = 0;
  bool has_borders_ = true;  // no piece reaches beyond a space that follows something else
  float min_score_;
  float max_score_;
};

}  // namespace atl::text
