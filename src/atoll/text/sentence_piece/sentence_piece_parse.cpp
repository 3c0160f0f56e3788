#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/files/lfs_pointer.h"
#include "atoll/text/byte_level.h"
#include "atoll/text/sentence_piece/sentence_piece_spec.h"
#include "atoll/text/sentence_piece/wire_format.h"
#include "atoll/text/utf8.h"

// Fields that say how the model was trained are passed over; of those that say how text is encoded
// an unknown one is refused by number, since it would be a tokenizer that is not the one in the
// file. Field numbers are those of sentencepiece_model.proto.

namespace atl::text {

namespace {

using Piece = SentencePieceSpec::Piece;
using Type = SentencePieceSpec::Type;

std::string utf8(const WireReader& reader, std::string_view what) {
  const std::string_view bytes = reader.bytes();
  if (valid_utf8_prefix(bytes) != bytes.size()) {
    reader.damaged(fmt::format("the {} is not UTF-8", what));
  }
  return std::string(bytes);
}

[[noreturn]] void refuse(const WireReader& reader, std::string_view what) {
  throw user_error("{}: {} is not supported", reader.where(), what);
}

[[noreturn]] void refuse_field(const WireReader& reader) {
  refuse(reader, fmt::format("field {}, which could change the result,", reader.field()));
}

Piece parse_piece(WireReader reader) {
  Piece piece;
  while (reader.next()) {
    switch (reader.field()) {
      case 1:
        piece.text = utf8(reader, "piece");
        break;
      case 2:
        piece.score = reader.float32();
        break;
      case 3: {
        const std::uint64_t type = reader.varint();
        if (type < 1 || type > 6) reader.damaged(fmt::format("the type {} is unknown", type));
        piece.type = static_cast<Type>(type);
        break;
      }
      default:
        refuse_field(reader);
    }
  }
  if (piece.text.empty()) reader.damaged("the piece is empty");
  if (!std::isfinite(piece.score)) {
    reader.damaged(fmt::format("the score {} is no number", piece.score));
  }
  if (piece.type == Type::kByte && !byte_of_token(piece.text)) {
    reader.damaged(fmt::format("\"{}\" is no byte (<0x00> to <0xFF>)", piece.text));
  }
  return piece;
}

void parse_trainer(WireReader reader, SentencePieceSpec& spec) {
  while (reader.next()) {
    switch (reader.field()) {
      case 3: {
        const std::uint64_t model = reader.varint();
        if (model == 3) refuse(reader, "the model type WORD");
        if (model == 4) refuse(reader, "the model type CHAR");
        if (model != 1 && model != 2) {
          reader.damaged(fmt::format("the model type {} is unknown", model));
        }
        spec.algorithm = static_cast<SentencePieceSpec::Algorithm>(model);
        break;
      }
      case 24:
        if (reader.flag()) refuse(reader, "treat_whitespace_as_suffix");
        break;
      case 35:
        spec.byte_fallback = reader.flag();
        break;
      case 44:
        spec.unk_surface = utf8(reader, "unk_surface");
        break;
      case 46:
        spec.bos_piece = utf8(reader, "bos_piece");
        break;
      case 47:
        spec.eos_piece = utf8(reader, "eos_piece");
        break;
      default:  // how it was trained
        break;
    }
  }
}

void parse_normalizer(WireReader reader, SentencePieceSpec& spec) {
  while (reader.next()) {
    switch (reader.field()) {
      case 1:  // the name
      case 6:  // the rules that precompiled_charsmap was made of
        break;
      case 2:
        spec.precompiled_charsmap = reader.bytes();
        break;
      case 3:
        spec.add_dummy_prefix = reader.flag();
        break;
      case 4:
        spec.remove_extra_whitespaces = reader.flag();
        break;
      case 5:
        spec.escape_whitespaces = reader.flag();
        break;
      default:
        refuse_field(reader);
    }
  }
}

void parse_denormalizer(WireReader reader) {
  while (reader.next()) {
    if (reader.field() == 2 && !reader.bytes().empty()) refuse(reader, "a charsmap for decoding");
  }
}

void check_pieces(const SentencePieceSpec& spec, std::string_view origin) {
  int num_unknown = 0;
  std::size_t num_bytes = 0;
  for (const Piece& piece : spec.pieces) {
    num_unknown += piece.type == Type::kUnknown ? 1 : 0;
    num_bytes += piece.type == Type::kByte ? 1 : 0;
  }
  if (num_unknown != 1) {
    throw damaged_error("{}: pieces: {} of the type UNKNOWN; there must be one", origin,
                        num_unknown);
  }
  // Pieces are unique (the Decoder sees to that), so the number is enough.
  if (num_bytes != (spec.byte_fallback ? 256 : 0)) {
    throw damaged_error("{}: pieces: {} of the type BYTE, but byte_fallback is {}", origin,
                        num_bytes, spec.byte_fallback);
  }
}

}  // namespace

SentencePieceSpec parse_sentence_piece(std::string_view file, std::string_view origin) {
  refuse_lfs_pointer(file, origin);
  SentencePieceSpec spec;
  WireReader reader(file, std::string(origin));
  const auto inner = [&](std::string_view name) {
    return WireReader(reader.bytes(), fmt::format("{}: {}", origin, name));
  };
  while (reader.next()) {
    switch (reader.field()) {
      case 1:
        spec.pieces.push_back(parse_piece(inner(fmt::format("pieces[{}]", spec.pieces.size()))));
        break;
      case 2:
        parse_trainer(inner("trainer_spec"), spec);
        break;
      case 3:
        parse_normalizer(inner("normalizer_spec"), spec);
        break;
      case 4:  // self tests
        break;
      case 5:
        parse_denormalizer(inner("denormalizer_spec"));
        break;
      default:
        refuse_field(reader);
    }
  }
  check_pieces(spec, origin);
  return spec;
}

}  // namespace atl::text
