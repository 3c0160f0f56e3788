#pragma once

// SentencePiece models for programs that read a tokenizer.json only, or read a tokenizer.model
// otherwise than the SentencePiece library does, as transformers 5 reads the spaces that a text
// begins with.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "atoll/text/sentence_piece/sentence_piece_spec.h"

namespace atl::text {

/// What about a model no tokenizer.json says so that Hugging Face's library gives the same ids;
/// empty when one does. A part of a sentence: "its algorithm is Unigram".
std::string obstacle_to_json(const SentencePieceSpec& spec);

/// A tokenizer.json that gives the ids of the model for every text that is UTF-8, with `before` and
/// `after` as what goes round a text. Throws Error(kUser) naming `origin` and the obstacle.
std::string sentence_piece_to_json(const SentencePieceSpec& spec,
                                   std::span<const std::int32_t> before,
                                   std::span<const std::int32_t> after, std::string_view origin);

}  // namespace atl::text
