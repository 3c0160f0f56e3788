#pragma once

// What a SentencePiece model file says, as plain data: parsed here, turned into an engine
// elsewhere. The file is a protocol buffer (sentencepiece_model.proto of the SentencePiece
// project).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text {

/// U+2581, which stands for a space inside pieces.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

/// All of a tokenizer.model that encoding and decoding need.
struct SentencePieceSpec {
  enum class Algorithm { kUnigram = 1, kBpe = 2 };
  enum class Type {
    kNormal = 1,
    kUnknown = 2,      ///< What a character without a piece becomes; there is exactly one.
    kControl = 3,      ///< <s>, </s>: never made from text unless asked for.
    kUserDefined = 4,  ///< Always one piece wherever it stands in the text.
    kUnused = 5,       ///< In the vocabulary, never the result.
    kByte = 6,         ///< <0x00> to <0xFF>, see byte_fallback.
  };
  /// A token; its id is its index.
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  Algorithm algorithm = Algorithm::kUnigram;
  std::vector<Piece> pieces;
  bool byte_fallback = false;                  ///< A character without a piece becomes its bytes.
  std::string unk_surface = " \xE2\x81\x87 ";  ///< What decoding writes for an unknown piece.
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";

  bool add_dummy_prefix = true;  ///< A space goes before the text.
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;    ///< Spaces become kSpaceSymbol.
  std::string precompiled_charsmap;  ///< See CharsMap; empty: characters stay as they are.
};

/// Reads a tokenizer.model; `origin` is its path for messages. Throws Error(kDamaged) when it is
/// malformed, Error(kUser) when it asks for something that is not supported. Memory stays
/// proportional to the file.
SentencePieceSpec parse_sentence_piece(std::string_view file, std::string_view origin);

}  // namespace atl::text
