#pragma once

// Learns a byte-level BPE vocabulary from text.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/text/tokenizer.h"

namespace atl {

/// What train_bpe makes.
struct BpeTrainerOptions {
  /// Tokens in all: specials, the 256 bytes, and merges. A text too small to give that many merges
  /// gives a smaller vocabulary.
  std::int32_t vocab_size = 4096;
  /// A pair that is seen less often is not merged; 0 and 1 mean the same.
  std::int64_t min_frequency = 0;
  /// They take the first ids, in this order; the first is the document separator if it bears one of
  /// the names that Tokenizer::end_of_text knows, or is the only one.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  /// What cuts text into words, in Oniguruma's syntax as Hugging Face files have it; empty means
  /// GPT-2's.
  std::string pattern;
};

/// Trains byte-level BPE on `texts` (Sennrich et al. 2016, section 3.2: merge the most frequent
/// pair, again and again; of equally frequent pairs the one with the lower ids). Deterministic, and
/// equal to Hugging Face's BpeTrainer with initial_alphabet = ByteLevel.alphabet(). Throws
/// Error(kUser) for a vocabulary smaller than 256 bytes and the specials, for empty or repeated
/// specials and for a bad pattern.
Tokenizer train_bpe(std::span<const std::string_view> texts, const BpeTrainerOptions& options = {});

}  // namespace atl
