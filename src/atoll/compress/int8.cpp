#include <algorithm>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"
#include "atoll/compress/magnitude.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/compress/int8.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n is a multiple of every vector's length. Within -127..127, as |x| * inverse is at most 127 and a
// rounding.
void EncodeInt8(const float* x, std::size_t n, float inverse, std::int8_t* out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, inverse);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    hn::StoreU(hn::DemoteTo(d8, code), d8, out + i);
  }
}

void DecodeInt8(const std::int8_t* codes, std::size_t n, float scale, float* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, scale);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(d32, hn::LoadU(d8, codes + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, code), factor), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::compress {

namespace {

HWY_EXPORT(EncodeInt8);
HWY_EXPORT(DecodeInt8);

constexpr std::size_t kBlock = 256;
/// Of 2^126, the limit of values, and its rounding.
constexpr float kLargestScale = 0x1p120F;

// A block: its scale as f32, then a byte for each element; value = code * scale. f32 and not a
// 16-bit scale, which would save 0.8 % of the bytes and make the largest value of a block inexact.
class Int8 final : public Codec {
 public:
  std::string name() const override { return "int8"; }
  std::size_t block_elements() const override { return kBlock; }

 protected:
  std::size_t block_bytes(std::size_t n) const override { return n == 0 ? 0 : sizeof(float) + n; }

  void encode_block(std::span<const float> x, std::byte* out) const override {
    const std::int32_t bits = require_encodable("int8", x);
    const float largest = bits < kTinyBits ? 0 : std::bit_cast<float>(bits);
    const float scale = largest / 127;
    const float inverse = largest == 0 ? 0 : 127 / largest;
    std::memcpy(out, &scale, sizeof(scale));
    float padded[kBlock] = {};
    const float* from = x.data();
    if (x.size() < kBlock) {
      std::copy(x.begin(), x.end(), padded);
      from = padded;
    }
    std::int8_t codes[kBlock];
    HWY_DYNAMIC_DISPATCH(EncodeInt8)(from, kBlock, inverse, codes);
    std::memcpy(out + sizeof(scale), codes, x.size());
  }

  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    float scale = 0;
    std::memcpy(&scale, bytes, sizeof(scale));
    if (!(scale >= 0 && scale <= kLargestScale)) {
      throw damaged_error("codec int8: a block of {} elements has the scale {}", out.size(), scale);
    }
    std::int8_t codes[kBlock] = {};
    std::memcpy(codes, bytes + sizeof(scale), out.size());
    float padded[kBlock];
    float* to = out.size() < kBlock ? padded : out.data();
    HWY_DYNAMIC_DISPATCH(DecodeInt8)(codes, kBlock, scale, to);
    if (to == padded) std::copy_n(padded, out.size(), out.begin());
  }
};

}  // namespace

std::unique_ptr<Codec> make_int8() {
  return std::make_unique<Int8>();
}

}  // namespace atl::compress
#endif  // HWY_ONCE
