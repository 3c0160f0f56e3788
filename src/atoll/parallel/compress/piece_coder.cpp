#include "atoll/parallel/compress/piece_coder.h"

#include <algorithm>
#include <array>

#include "atoll/compress/arithmetic.h"
#include "atoll/compress/feedback.h"
#include "atoll/ops/codes/codes.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {

namespace {

std::span<float> floats(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  return {tensor.data<float>() + begin, static_cast<std::size_t>(count)};
}

std::span<std::byte> bytes(const Tensor& tensor, std::int64_t begin, std::size_t count) {
  return {static_cast<std::byte*>(tensor.raw()) + begin, count};
}

}  // namespace

PieceCoder::PieceCoder(const FlatLayout& layout, const std::string& codec)
    : bits_(codec == "int4" ? 4 : 8),
      codec_(compress::make_codec(codec)),
      codes_(code_pieces(layout, [this](std::int64_t n) { return codec_->max_bytes(n); })) {
  ATOLL_CHECK(codec == "int4" || codec == "int8", "codec {}", codec);
  rows_.push_back(0);
  for (const BucketCodes& codes : codes_) rows_.push_back(rows_.back() + std::ssize(codes.pieces));
}

void PieceCoder::request(MemoryPlan& plan) {
  table_request_ = plan.request_forever(
      "places of codes", "codes", Spec{Dtype::kI64, {rows_.back(), ops::kPieceColumns}}.bytes());
}

void PieceCoder::bind(const Arena& arena) {
  table_ = arena.tensor(table_request_, {Dtype::kI64, {rows_.back(), ops::kPieceColumns}});
  write_on_host<std::int64_t>(table_, [&](std::span<std::int64_t> to) {
    auto row = to.begin();
    for (const BucketCodes& codes : codes_) {
      for (const CodePiece& piece : codes.pieces) {
        row[ops::kPieceBegin] = piece.begin;
        row[ops::kPieceCount] = piece.count;
        row[ops::kPieceByte] = piece.byte;
        row += ops::kPieceColumns;
      }
    }
  });
}

Tensor PieceCoder::table(const Pieces& pieces) const {
  const std::int64_t first = rows_[pieces.bucket];
  return table_.rows(first + static_cast<std::int64_t>(pieces.first),
                     first + static_cast<std::int64_t>(pieces.end));
}

void PieceCoder::encode(Run& run, const Pieces& pieces, const Values& values,
                        const Tensor& codes) const {
  if (!is_on_host(codes)) {
    return ops::encode_codes(run, {.bits = bits_,
                                   .pieces = table(pieces),
                                   .x = values.x,
                                   .x_first = values.x_first,
                                   .residual = values.residual,
                                   .minus = values.minus,
                                   .codes = codes});
  }
  const std::span<const CodePiece> some = codes_[pieces.bucket].pieces;
  run.threads().run(static_cast<std::int64_t>(pieces.end - pieces.first), [&](std::int64_t i) {
    const CodePiece& piece = some[pieces.first + static_cast<std::size_t>(i)];
    std::span<const float> x = floats(values.x, piece.begin - values.x_first, piece.count);
    std::array<float, kBlockElements> difference;
    if (values.minus.defined()) {
      const std::span<float> wanted = std::span(difference).first(x.size());
      std::copy(x.begin(), x.end(), wanted.begin());
      compress::subtract(floats(values.minus, piece.begin, piece.count), wanted);
      x = wanted;
    }
    compress::encode_residual(*codec_, x,
                              values.residual.defined()
                                  ? floats(values.residual, piece.begin, piece.count)
                                  : std::span<float>(),
                              bytes(codes, piece.byte, codec_->max_bytes(piece.count)));
  });
}

void PieceCoder::decode(Run& run, const Pieces& pieces, const Sum& sum) const {
  if (!is_on_host(sum.codes)) {
    return ops::decode_codes(run, {.bits = bits_,
                                   .pieces = table(pieces),
                                   .codes = sum.codes,
                                   .byte_first = sum.byte_first,
                                   .sources = sum.sources,
                                   .source_bytes = sum.source_bytes,
                                   .adds = sum.adds,
                                   .to = sum.to,
                                   .to_first = sum.to_first});
  }
  const std::span<const CodePiece> some = codes_[pieces.bucket].pieces;
  const auto decode_one = [&](std::int64_t i) {
    const CodePiece& piece = some[pieces.first + static_cast<std::size_t>(i)];
    for (std::int64_t source = 0; source < sum.sources; ++source) {
      const std::int64_t at = source * sum.source_bytes + piece.byte - sum.byte_first;
      compress::decode_residual(*codec_, bytes(sum.codes, at, codec_->max_bytes(piece.count)),
                                sum.adds || source > 0,
                                floats(sum.to, piece.begin - sum.to_first, piece.count));
    }
  };
  const auto count = static_cast<std::int64_t>(pieces.end - pieces.first);
  if (!sum.alone) return run.threads().run(count, decode_one);
  for (std::int64_t i = 0; i < count; ++i) decode_one(i);
}

}  // namespace atl::parallel
