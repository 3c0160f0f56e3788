#pragma once

// How fast text becomes tokens and how fast a vocabulary is learnt, on one thread.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/text/bpe_trainer.h"
#include "atoll/text/tokenizer.h"

namespace atl::text {

/// Documents of at most so many bytes that end with a line; 0: every line is one. Views of `text`.
std::vector<std::string_view> cut_documents(std::string_view text, std::size_t document_bytes);

/// Seconds of each of `rounds` rounds of encoding all documents, each with an encoder that has seen
/// nothing; one round before them warms the machine. `ids`: what came of the last.
std::vector<double> time_encoding(const Tokenizer& tokenizer,
                                  std::span<const std::string_view> documents, int rounds,
                                  std::vector<std::int32_t>& ids);

/// Seconds of each round of cutting the documents into words by GPT-2's pattern and doing nothing
/// with them: what BPE behind that pattern cannot be faster than.
std::vector<double> time_words(std::span<const std::string_view> documents, int rounds);

/// Seconds of each round of learning a byte-level BPE vocabulary from `text`, given as one string.
std::vector<double> time_training(std::string_view text, const BpeTrainerOptions& options,
                                  int rounds);

}  // namespace atl::text
