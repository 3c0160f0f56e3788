// Codes of 4 and 8 bits on the fake GPU: the bytes, the residual and the sums of ref, which
// parallel/compress/gpu_codes_test.cpp compares with the codecs.

#include "atoll/ops/codes/codes.h"

#include <gtest/gtest.h>

#include <bit>

#include "atoll/ops/codes/ref.h"
#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;
using test::random_tensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

// Pieces about which blocks begin, end and are cut; between them elements of no piece.
constexpr std::int64_t kCounts[] = {1, 255, 256, 300, 2, 257, 2304, 500};
constexpr std::int64_t kGap = 3;

std::int64_t code_bytes(int bits, std::int64_t count) {
  const std::int64_t whole = count / kCodeBlock, rest = count % kCodeBlock;
  return whole * (4 + kCodeBlock * bits / 8) +
         (rest == 0 ? 0 : 4 + (bits == 8 ? rest : (rest + 1) / 2));
}

struct Pieces {
  OwnedTensor<std::int64_t> table{Shape{std::ssize(kCounts), kPieceColumns}};
  std::int64_t elements = 0, bytes = 0;
};
Pieces pieces_of(int bits, bool are_aligned) {
  Pieces all;
  for (std::int64_t p = 0; p < std::ssize(kCounts); ++p) {
    std::int64_t* row = &all.table.values[static_cast<std::size_t>(p * kPieceColumns)];
    row[kPieceBegin] = all.elements;
    row[kPieceCount] = kCounts[p];
    row[kPieceByte] = all.bytes;
    all.elements += kCounts[p] + (p + 1 < std::ssize(kCounts) ? kGap : 0);
    all.bytes += code_bytes(bits, kCounts[p]);
    if (!are_aligned) continue;
    all.elements = (all.elements + 3) / 4 * 4;
    all.bytes = (all.bytes + 3) / 4 * 4;
  }
  return all;
}

// Compared as bits: a NaN is itself.
template <typename T>
bool same_bits(const OwnedTensor<T>& a, const OwnedTensor<T>& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(T)) == 0;
}

struct Encoding {
  OwnedTensor<std::int64_t> table;
  OwnedTensor<float> x, residual, minus;
  OwnedTensor<std::uint8_t> codes;
  bool operator==(const Encoding& other) const {
    return same_bits(residual, other.residual) && same_bits(codes, other.codes);
  }
};

// Values of many sizes; a block of zeros, one that is tiny, one that is not finite.
Encoding start_of(const Pieces& pieces) {
  Encoding all{pieces.table, random_tensor<float>({pieces.elements}, 1),
               random_tensor<float>({pieces.elements}, 2, 0.1F),
               random_tensor<float>({pieces.elements}, 3),
               OwnedTensor<std::uint8_t>({pieces.bytes}, 0xa5)};
  for (std::int64_t i = 0; i < pieces.elements; ++i)
    all.x[i] *= std::ldexp(1.0F, static_cast<int>(i / 100 % 9) - 4);
  const std::int64_t large = pieces.table[6 * kPieceColumns + kPieceBegin];
  for (std::int64_t i = 0; i < kCodeBlock; ++i) {
    all.x[large + i] = all.residual[large + i] = all.minus[large + i] = 0;
    all.x[large + kCodeBlock + i] = 1e-33F;
    all.residual[large + kCodeBlock + i] = all.minus[large + kCodeBlock + i] = 0;
  }
  all.x[large + 2 * kCodeBlock + 7] = std::numeric_limits<float>::infinity();
  all.x[large + 3 * kCodeBlock + 200] = 0x1p126F;
  all.x[large + 4 * kCodeBlock + 31] = std::nextafter(0x1p126F, 0.0F);
  all.residual[large + 4 * kCodeBlock + 31] = all.minus[large + 4 * kCodeBlock + 31] = 0;
  return all;
}

enum class With { kNothing, kResidual, kMinus };

void check_encoding(int bits, bool are_aligned, With with) {
  const Pieces pieces = pieces_of(bits, are_aligned);
  const Encoding start = start_of(pieces);
  constexpr std::int64_t kFirst = 0;
  const auto args = [&](Tensor table, Tensor x, Tensor residual, Tensor minus, Tensor codes) {
    return EncodeCodes{.bits = bits,
                       .pieces = table,
                       .x = x,
                       .x_first = kFirst,
                       .residual = with == With::kResidual ? residual : Tensor(),
                       .minus = with == With::kMinus ? minus : Tensor(),
                       .codes = codes};
  };
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Encoding& s) {
        const Tensor table = gpu(s.table), x = gpu(s.x), residual = gpu(s.residual),
                     minus = gpu(s.minus), codes = gpu(s.codes);
        encode_codes(gpu.run, args(table, x, residual, minus, codes));
      },
      kDiffers);
  Encoding exact = start;
  ref::encode_codes(args(exact.table, exact.x, exact.residual, exact.minus, exact.codes));
  EXPECT_EQ(got, exact) << bits << " bits";
  EXPECT_EQ(same_bits(exact.residual, start.residual), with != With::kResidual);
}

TEST(CudaCodes, EncodingGivesTheBitsOfRef) {
  for (const int bits : {4, 8}) {
    for (const bool are_aligned : {false, true}) {
      for (const With with : {With::kNothing, With::kResidual, With::kMinus}) {
        check_encoding(bits, are_aligned, with);
      }
    }
  }
}

struct Decoding {
  OwnedTensor<std::int64_t> table;
  OwnedTensor<std::uint8_t> codes;
  OwnedTensor<float> to;
  // A GPU's NaN has bits of its own.
  bool operator==(const Decoding& other) const {
    return std::equal(to.values.begin(), to.values.end(), other.to.values.begin(),
                      other.to.values.end(), [](float a, float b) {
                        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
                               (std::isnan(a) && std::isnan(b));
                      });
  }
};

// More than are on their way at once. The third has a scale and a code that no encoder writes.
constexpr std::int64_t kSources = 6;

OwnedTensor<std::uint8_t> codes_of(const Pieces& pieces, int bits) {
  OwnedTensor<std::uint8_t> all({kSources * pieces.bytes});
  for (std::int64_t source = 0; source < kSources; ++source) {
    Encoding one = start_of(pieces);
    for (std::int64_t i = 0; i < one.x.size(); ++i) one.x[i] *= static_cast<float>(source) - 0.7F;
    ref::encode_codes({.bits = bits, .pieces = one.table, .x = one.x, .codes = one.codes});
    std::copy(one.codes.values.begin(), one.codes.values.end(),
              all.values.begin() + source * pieces.bytes);
  }
  const std::int64_t last = 2 * pieces.bytes;
  const float negative = -1;
  std::memcpy(
      &all.values[static_cast<std::size_t>(last + pieces.table[3 * kPieceColumns + kPieceByte])],
      &negative, sizeof negative);
  all[last + pieces.table[4 * kPieceColumns + kPieceByte] + 4] = 0;
  return all;
}

void check_decoding(int bits, bool are_aligned, bool adds) {
  const Pieces pieces = pieces_of(bits, are_aligned);
  // The tensors begin before the pieces.
  const std::int64_t to_first = are_aligned ? -8 : -5, byte_first = are_aligned ? -4 : -2;
  const OwnedTensor<std::uint8_t> sent = codes_of(pieces, bits);
  OwnedTensor<std::uint8_t> codes({sent.size() - byte_first}, 0x77);
  std::copy(sent.values.begin(), sent.values.end(), codes.values.begin() - byte_first);
  const auto args = [&](Tensor table, Tensor from, Tensor to) {
    return DecodeCodes{.bits = bits,
                       .pieces = table,
                       .codes = from,
                       .byte_first = byte_first,
                       .sources = kSources,
                       .source_bytes = pieces.bytes,
                       .adds = adds,
                       .to = to,
                       .to_first = to_first};
  };
  const Decoding start{pieces.table, codes, random_tensor<float>({pieces.elements - to_first}, 9)};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Decoding& s) {
        const Tensor table = gpu(s.table), from = gpu(s.codes), to = gpu(s.to);
        decode_codes(gpu.run, args(table, from, to));
      },
      kDiffers);
  Decoding exact = start;
  ref::decode_codes(args(exact.table, exact.codes, exact.to));
  ASSERT_EQ(got.to.size(), exact.to.size());
  for (std::int64_t i = 0; i < exact.to.size(); ++i) {
    if (std::isnan(exact.to[i])) {
      EXPECT_TRUE(std::isnan(got.to[i])) << i;
    } else {
      EXPECT_EQ(got.to[i], exact.to[i]) << bits << " bits, element " << i;
    }
  }
  EXPECT_TRUE(std::isnan(exact.to[pieces.table[3 * kPieceColumns] - to_first]));
}

TEST(CudaCodes, DecodingGivesTheBitsOfRef) {
  for (const int bits : {4, 8}) {
    for (const bool are_aligned : {false, true}) {
      for (const bool adds : {false, true}) check_decoding(bits, are_aligned, adds);
    }
  }
}

TEST(CudaCodes, NoPiecesAreNoCodes) {
  Gpu gpu;
  OwnedTensor<std::int64_t> table({1, kPieceColumns});
  OwnedTensor<float> x({4}, 1);
  OwnedTensor<std::uint8_t> codes({4});
  encode_codes(gpu.run,
               {.bits = 8, .pieces = gpu(table).rows(0, 0), .x = gpu(x), .codes = gpu(codes)});
  gpu.finish();
  EXPECT_EQ(codes, OwnedTensor<std::uint8_t>({4}));
}

}  // namespace
}  // namespace atl::ops
