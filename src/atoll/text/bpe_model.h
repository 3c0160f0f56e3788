#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/text/pair_map.h"
#include "atoll/text/tokenizer_spec.h"

namespace atl::text {

/// Byte pair encoding of words (Sennrich et al. 2016, "Neural Machine Translation of Rare Words
/// with Subword Units", section 3.2) over bytes: the pair with the best rank merges first, the
/// leftmost of equals first.
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

  /// Throws Error(kDamaged) for merges of or into unknown tokens and for a merge table that does
  /// not fit, Error(kUser) for a vocabulary in which a byte has no token; all name `origin`.
  BpeModel(const BpeSpec& spec, std::string_view origin);

  /// Appends the ids of one word, any bytes.
  void encode_word(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& out) const;

 private:
  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};
  struct Merge {
    std::uint32_t rank = kNoMerge;
    std::int32_t id = -1;
  };

  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  std::uint32_t rank_of(std::int32_t left, std::int32_t right) const {
    const Merge* merge = merges_.find({left, right});
    return merge == nullptr ? kNoMerge : merge->rank;
  }

  std::array<std::int32_t, 256> byte_ids_{};
  PairMap<Merge> merges_;
  std::unordered_map<std::string, std::int32_t> whole_words_;  // filled only for ignore_merges
};

}  // namespace atl::text
