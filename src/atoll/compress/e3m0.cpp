#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"
#include "atoll/compress/magnitude.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/e3m0.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

// Symbol s from 0 to 14 of a block with top exponent t: level l = s - 7, value 0 for l = 0, else
// sign(l) * 2^(t - 7 + |l|): 0 and, of each sign, the seven powers of two that end at 2^t. A value
// becomes the nearest of these, of two equally near the larger.
//
// Fifteen symbols, as a zero needs no sign: 16 of them are less than 63 bits. 128 elements are 8
// numbers of 16 digits in base 15, 63 bytes: that pays for the blocks' exponents, and the codec
// stays below an eighth of f32 with everything. What is left of a vector is half bytes.

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;

constexpr std::size_t kColumns = 32;  // numbers of four digits in a group
constexpr std::size_t kDigits = 4;

HWY_INLINE hn::Vec<U16> symbols(hn::Vec<F32> x, std::int32_t top) {
  const I32 d;
  const auto raw = hn::BitCast(d, x);
  const auto bits = hn::And(raw, hn::Set(d, 0x7fffffff));
  const auto rounded = hn::ShiftRight<23>(hn::Add(bits, hn::Set(d, 0x400000)));
  const auto level = hn::Sub(rounded, hn::Set(d, top - 7));
  const auto clamped = hn::Min(hn::Max(level, hn::Set(d, 1)), hn::Set(d, 7));
  // Below half the lowest power: its exponent, not rounded, is two or more below.
  const auto is_zero = hn::Lt(hn::ShiftRight<23>(bits), hn::Set(d, top - 7));
  const auto magnitude = hn::IfThenZeroElse(is_zero, clamped);
  const auto negative = hn::ShiftRight<31>(raw);  // 0 or -1
  const auto signed_level = hn::Sub(hn::Xor(magnitude, negative), negative);
  return hn::DemoteTo(U16(), hn::Add(signed_level, hn::Set(d, 7)));
}

/// 128 elements to 32 numbers below 15^4: digit j of number c is element 32 j + c.
void EncodeGroup(const float* x, std::int32_t top, std::uint16_t* numbers) {
  const F32 d;
  const U16 d16;
  for (std::size_t c = 0; c < kColumns; c += hn::Lanes(d)) {
    auto number = hn::Zero(d16);
    for (std::size_t j = kDigits; j-- > 0;) {
      const auto digit = symbols(hn::LoadU(d, x + j * kColumns + c), top);
      number = hn::Add(hn::Mul(number, hn::Set(d16, 15)), digit);
    }
    hn::StoreU(number, d16, numbers + c);
  }
}

void DecodeGroup(const std::uint16_t* numbers, std::int32_t top, float* out) {
  const F32 d;
  const I32 d32;
  const U16 d16;
  for (std::size_t c = 0; c < kColumns; c += hn::Lanes(d)) {
    auto number = hn::LoadU(d16, numbers + c);
    for (std::size_t j = 0; j < kDigits; ++j) {
      // number / 15 by its inverse: exact for all 16-bit numbers.
      const auto rest = hn::ShiftRight<3>(hn::MulHigh(number, hn::Set(d16, 0x8889)));
      const auto symbol = hn::Sub(number, hn::Mul(rest, hn::Set(d16, 15)));
      number = rest;
      const auto level = hn::Sub(hn::BitCast(d32, hn::PromoteTo(U32(), symbol)), hn::Set(d32, 7));
      const auto exponent = hn::Add(hn::Abs(level), hn::Set(d32, top - 7));
      const auto sign = hn::And(level, hn::Set(d32, static_cast<std::int32_t>(0x80000000)));
      const auto bits = hn::Or(hn::ShiftLeft<23>(exponent), sign);
      const auto is_zero = hn::Eq(level, hn::Zero(d32));
      const auto value = hn::BitCast(d, hn::IfThenZeroElse(is_zero, bits));
      hn::StoreU(value, d, out + j * kColumns + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

namespace {

HWY_EXPORT(EncodeGroup);
HWY_EXPORT(DecodeGroup);

constexpr std::size_t kBlock = 512;
constexpr std::size_t kGroup = 128;
constexpr std::size_t kGroupBytes = 63;
constexpr std::size_t kNumbers = 32;
constexpr std::uint64_t kFourDigits = 50625;                   // 15^4
constexpr std::uint64_t kSixteenDigits = 6568408355712890625;  // 15^16
constexpr std::int32_t kMinTop = kTinyBits >> 23;
constexpr std::int32_t kMaxTop = kLimitBits >> 23;
/// Makes every value round to zero.
constexpr std::int32_t kTopOfZeros = 255;

/// What `symbols` is to vectors.
std::uint32_t symbol_of(float value, std::int32_t top) {
  const std::int32_t bits = magnitude_bits(value);
  if ((bits >> 23) < top - 7) return 7;
  const std::int32_t level = std::clamp(((bits + 0x400000) >> 23) - (top - 7), 1, 7);
  return static_cast<std::uint32_t>(std::signbit(value) ? 7 - level : 7 + level);
}

float value_of(std::uint32_t symbol, std::int32_t top) {
  const std::int32_t level = static_cast<std::int32_t>(symbol) - 7;
  if (level == 0 || top == 0) return 0;
  const float magnitude = std::bit_cast<float>((top - 7 + std::abs(level)) << 23);
  return level < 0 ? -magnitude : magnitude;
}

// Seven words of 63 bits, whose highest bits are the upper seven of an eighth; its others follow.
void write_group(const std::uint16_t* numbers, std::byte* out) {
  std::uint64_t words[8];
  for (std::size_t j = 0; j < 8; ++j) {
    const std::uint16_t* four = numbers + 4 * j;
    words[j] = four[0] + kFourDigits * (four[1] + kFourDigits * (four[2] + kFourDigits * four[3]));
  }
  for (std::size_t j = 0; j < 7; ++j) {
    words[j] |= (words[7] >> (56 + j)) << 63;
    std::memcpy(out + 8 * j, &words[j], 8);
  }
  std::memcpy(out + 56, &words[7], 7);
}

/// False when a word is no number of 16 digits.
bool read_group(const std::byte* bytes, std::uint16_t* numbers) {
  std::uint64_t words[8];
  words[7] = 0;
  std::memcpy(&words[7], bytes + 56, 7);
  bool is_right = true;
  for (std::size_t j = 0; j < 8; ++j) {
    if (j < 7) {
      std::memcpy(&words[j], bytes + 8 * j, 8);
      words[7] |= (words[j] >> 63) << (56 + j);
      words[j] &= ~(std::uint64_t{1} << 63);
    }
    std::uint64_t word = words[j];
    is_right &= word < kSixteenDigits;
    for (std::size_t i = 0; i < 3; ++i) {
      numbers[4 * j + i] = static_cast<std::uint16_t>(word % kFourDigits);
      word /= kFourDigits;
    }
    numbers[4 * j + 3] = static_cast<std::uint16_t>(word);
  }
  return is_right;
}

// A block: a byte t + 127, 0 for a block of zeros; 63 bytes for each 128 elements; half a byte for
// each of the others, the lower half first.
class E3m0 final : public Codec {
 public:
  std::string name() const override { return "e3m0"; }
  std::size_t block_elements() const override { return kBlock; }

 protected:
  std::size_t block_bytes(std::size_t n) const override {
    return n == 0 ? 0 : 1 + n / kGroup * kGroupBytes + (n % kGroup + 1) / 2;
  }

  void encode_block(std::span<const float> x, std::byte* out) const override {
    const std::int32_t bits = require_encodable("e3m0", x);
    const std::int32_t top = bits < kTinyBits ? 0 : (bits + 0x400000) >> 23;
    const std::int32_t rounds_at = top == 0 ? kTopOfZeros : top;
    *out++ = static_cast<std::byte>(top);
    std::size_t i = 0;
    for (; i + kGroup <= x.size(); i += kGroup, out += kGroupBytes) {
      std::uint16_t numbers[kNumbers];
      HWY_DYNAMIC_DISPATCH(EncodeGroup)(x.data() + i, rounds_at, numbers);
      write_group(numbers, out);
    }
    for (; i < x.size(); i += 2) {
      const std::uint32_t low = symbol_of(x[i], rounds_at);
      const std::uint32_t high = i + 1 < x.size() ? symbol_of(x[i + 1], rounds_at) : 0;
      *out++ = static_cast<std::byte>(low | high << 4);
    }
  }

  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    const auto top = std::to_integer<std::int32_t>(*bytes++);
    if (top != 0 && (top < kMinTop || top > kMaxTop)) {
      throw damaged_error("codec e3m0: a block of {} elements has the exponent {}", out.size(),
                          top - 127);
    }
    std::size_t i = 0;
    for (; i + kGroup <= out.size(); i += kGroup, bytes += kGroupBytes) {
      std::uint16_t numbers[kNumbers];
      if (!read_group(bytes, numbers)) throw not_symbols(out.size());
      if (top == 0) {
        std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i), kGroup, 0.0F);
      } else {
        HWY_DYNAMIC_DISPATCH(DecodeGroup)(numbers, top, out.data() + i);
      }
    }
    for (; i < out.size(); i += 2, ++bytes) {
      const auto both = std::to_integer<std::uint32_t>(*bytes);
      if ((both & 15) == 15 || both >> 4 == 15) throw not_symbols(out.size());
      out[i] = value_of(both & 15, top);
      if (i + 1 < out.size()) out[i + 1] = value_of(both >> 4, top);
    }
  }

 private:
  static Error not_symbols(std::size_t n) {
    return damaged_error("codec e3m0: a block of {} elements has one that is none of its 15 values",
                         n);
  }
};

}  // namespace

std::unique_ptr<Codec> make_e3m0() {
  return std::make_unique<E3m0>();
}

}  // namespace atl::compress
#endif  // HWY_ONCE
