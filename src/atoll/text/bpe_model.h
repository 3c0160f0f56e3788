#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/pair_map.h"
#include "atoll/text/token_index.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// Byte pair encoding of words (Sennrich et al. 2016, "Neural Machine Translation of Rare Words
/// with Subword Units", section 3.2) over bytes or characters: the pair with the best rank merges
/// first, the leftmost of equals first.
class BpeModel {
 public:
  /// Working memory of encode_word.
  struct Scratch {
    struct Symbol {
      std::int32_t id;
      std::uint32_t rank;  // of the pair this symbol and the next one make; kNoMerge: none
      std::int32_t previous, next;
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t position;
      std::int32_t left, right;  // the ids when it was queued; stale when they have changed
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// `vocab` has the spec's tokens. Throws Error(kDamaged) for merges of or into unknown tokens and
  /// for a merge table that does not fit, Error(kUser) for a vocabulary in which a byte that needs
  /// a token has none; all name `origin`.
  BpeModel(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin);

  /// Appends the ids of one word, any bytes; bytes that are not UTF-8 count as unknown characters.
  /// Returns true, or false when there is neither a token for a character nor for unknown ones;
  /// first_unknown() then says where, and `out` is as it was.
  bool encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

  /// The byte of `word` at which the first character without a token begins, or its size.
  std::size_t first_unknown(std::string_view word) const;

 private:
  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};
  struct Merge {
    std::uint32_t rank = kNoMerge;
    std::int32_t id = -1;
  };

  void index_bytes(const TokenIndex& vocab, std::string_view origin);
  void index_chars(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin);
  void index_merges(const BpeSpec& spec, const TokenIndex& vocab, std::string_view origin);
  /// False when a byte has no token.
  bool add_bytes(std::string_view bytes, Scratch& scratch) const;
  bool add_chars(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const {
    const Merge* merge = merges_.find({left, right});
    return merge == nullptr ? kNoMerge : merge->rank;
  }

  bool byte_level_;
  bool byte_fallback_;
  bool fuse_unk_;
  std::int32_t unk_id_ = -1;
  // Where in its word a character stands, as far as tokens differ by it.
  enum Place { kInside = 0, kFirst = 1, kLast = 2, kOnly = 3 };
  Place place(bool first, bool last) const {
    if (!has_affixes_) return kInside;
    return static_cast<Place>((first ? kFirst : 0) + (last ? kLast : 0));
  }

  std::string continuing_prefix_;
  std::string end_suffix_;
  bool has_affixes_;
  // Of byte level, where -1 is a byte without a token, and of byte fallback; by Place.
  std::array<std::array<std::int32_t, 256>, 4> byte_ids_{};
  // Unless byte-level; by Place.
  std::array<std::unordered_map<char32_t, std::int32_t>, 4> char_ids_;
  PairMap<Merge> merges_;
  TokenIndex whole_words_;  // filled only for ignore_merges
};

}  // namespace atl::text
