#include <algorithm>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"
#include "atoll/compress/magnitude.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/int4.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kHalf = 128;  // elements of half a block

// Byte i holds elements i and kHalf + i, the lower half first: halves of a block are loaded as they
// lie. Codes are code + 8, within 1..15, as |x| * inverse is at most 7 and a rounding.
void EncodeInt4(const float* x, float inverse, std::uint8_t* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, inverse);
  const auto offset = hn::Set(d32, 8);
  for (std::size_t i = 0; i < kHalf; i += hn::Lanes(d)) {
    const auto low = hn::Add(hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor)), offset);
    const auto high = hn::Add(hn::NearestInt(hn::Mul(hn::LoadU(d, x + kHalf + i), factor)), offset);
    hn::StoreU(hn::DemoteTo(d8, hn::Or(low, hn::ShiftLeft<4>(high))), d8, out + i);
  }
}

void DecodeInt4(const std::uint8_t* codes, float scale, float* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, scale);
  const auto offset = hn::Set(d32, 8);
  for (std::size_t i = 0; i < kHalf; i += hn::Lanes(d)) {
    const auto both = hn::PromoteTo(d32, hn::LoadU(d8, codes + i));
    const auto low = hn::Sub(hn::And(both, hn::Set(d32, 15)), offset);
    const auto high = hn::Sub(hn::ShiftRight<4>(both), offset);
    hn::StoreU(hn::Mul(hn::ConvertTo(d, low), factor), d, out + i);
    hn::StoreU(hn::Mul(hn::ConvertTo(d, high), factor), d, out + kHalf + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

namespace {

HWY_EXPORT(EncodeInt4);
HWY_EXPORT(DecodeInt4);

constexpr std::size_t kBlock = 256;
constexpr std::size_t kCodeBytes = kBlock / 2;
/// Of 2^126, the limit of values, and its rounding.
constexpr float kLargestScale = 0x1p124F;

// A block: its scale as f32, then half a byte for each element, code + 8; value = code * scale,
// code from -7 to 7. A block of fewer than 256 elements has them in pairs, i and i + (n + 1) / 2.
// Plain steps and not a normal number's quantiles: with error feedback what a step is too coarse
// for is sent later, and zero must be among the values.
class Int4 final : public Codec {
 public:
  std::string name() const override { return "int4"; }
  std::size_t block_elements() const override { return kBlock; }

 protected:
  std::size_t block_bytes(std::size_t n) const override {
    return n == 0 ? 0 : sizeof(float) + (n + 1) / 2;
  }

  void encode_block(std::span<const float> x, std::byte* out) const override {
    const std::int32_t bits = require_encodable("int4", x);
    const float largest = bits < kTinyBits ? 0 : std::bit_cast<float>(bits);
    const float scale = largest / 7;
    const float inverse = largest == 0 ? 0 : 7 / largest;
    std::memcpy(out, &scale, sizeof(scale));
    float padded[kBlock] = {};
    const float* from = x.data();
    const std::size_t half = (x.size() + 1) / 2;
    if (x.size() < kBlock) {
      for (std::size_t i = 0; i < x.size(); ++i)
        padded[i < half ? i : i - half + kCodeBytes] = x[i];
      from = padded;
    }
    std::uint8_t codes[kCodeBytes];
    HWY_DYNAMIC_DISPATCH(EncodeInt4)(from, inverse, codes);
    std::memcpy(out + sizeof(scale), codes, half);
  }

  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    float scale = 0;
    std::memcpy(&scale, bytes, sizeof(scale));
    if (!(scale >= 0 && scale <= kLargestScale)) {
      throw damaged_error("codec int4: a block of {} elements has the scale {}", out.size(), scale);
    }
    const std::size_t half = (out.size() + 1) / 2;
    std::uint8_t codes[kCodeBytes];
    std::fill_n(codes, kCodeBytes, std::uint8_t{0x88});
    std::memcpy(codes, bytes + sizeof(scale), half);
    bool is_right = true;
    for (const std::uint8_t both : codes) is_right &= (both & 15) != 0 && both >> 4 != 0;
    if (!is_right) {
      throw damaged_error("codec int4: a block of {} elements has a code that is none of its 15",
                          out.size());
    }
    float padded[kBlock];
    float* to = out.size() < kBlock ? padded : out.data();
    HWY_DYNAMIC_DISPATCH(DecodeInt4)(codes, scale, to);
    if (to != padded) return;
    std::copy_n(padded, half, out.begin());
    std::copy_n(padded + kCodeBytes, out.size() - half,
                out.begin() + static_cast<std::ptrdiff_t>(half));
  }
};

}  // namespace

std::unique_ptr<Codec> make_int4() {
  return std::make_unique<Int4>();
}

}  // namespace atl::compress
#endif  // HWY_ONCE
