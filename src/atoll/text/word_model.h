#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/sentence_piece/byte_trie.h"
#include "atoll/text/token_index.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// The models of a tokenizer.json that do not merge, as Hugging Face's library has them: WordLevel,
/// WordPiece (Wu et al. 2016, "Google's Neural Machine Translation System", section 4.1; longest
/// match first) and Unigram (Kudo 2018, "Subword Regularization", section 3.2). The library's
/// Unigram is not SentencePiece's: it adds in double precision, and each word by itself.
class WordModel {
 public:
  /// Working memory of encode_word. (Unigram)
  struct Scratch {
    /// The best way to cut the word up to here.
    struct Path {
      double score = 0;
      std::int32_t id = -1;
      std::uint32_t begin = 0;  // of its last piece
      bool reached = false;
    };
    struct Piece {
      std::string_view text;
      bool unknown;
    };
    std::vector<Path> paths;
    std::vector<Piece> pieces;
    std::string spelled;
  };

  /// `vocab` has the spec's tokens. Throws Error(kDamaged), naming `origin`, for an unk_id outside
  /// the vocabulary.
  WordModel(const TokenizerSpec& spec, const TokenIndex& vocab, std::string_view origin);

  /// Appends the ids of one word, any bytes. Returns false, with `out` as it was, when it needs the
  /// token for unknown text and there is none.
  bool encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  bool add_unknown(std::vector<std::int32_t>& out) const;
  bool encode_pieces(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;
  bool encode_unigram(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& out) const;
  bool find_paths(std::string_view word, Scratch& scratch) const;
  void collect_pieces(std::string_view word, Scratch& scratch) const;
  bool emit(std::string_view piece, std::vector<std::int32_t>& out) const;

  ModelKind kind_;
  WordModelSpec spec_;
  TokenIndex vocab_;
  std::optional<std::int32_t> unk_id_;
  // Of Unigram.
  ByteTrie pieces_;
  std::vector<std::int32_t> byte_ids_;  // empty without byte_fallback; -1: no token
  double unknown_score_ = 0;
  // Of WordPiece: the longest token, which bounds how far a match is looked for.
  std::size_t longest_ = 0;
};

}  // namespace atl::text
