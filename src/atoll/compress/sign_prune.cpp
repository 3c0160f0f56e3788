#include <algorithm>
#include <bit>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/compress/codecs.h"
#include "atoll/compress/magnitude.h"
#include "atoll/compress/parameters.h"
#include "atoll/compress/select.h"
#include "atoll/simd/bf16.h"
#include "atoll/simd/convert.h"

namespace atl::compress {

namespace {

constexpr std::size_t kBlock = 256;

/// Whether the negative values of a block outweigh the positive ones. Summed in sixteen columns, so
/// that a compiler may use vectors without changing the order.
bool elects_negative(std::span<const float> x) {
  constexpr std::size_t kColumns = 16;
  float columns[kColumns] = {};
  std::size_t i = 0;
  for (; i + kColumns <= x.size(); i += kColumns) {
    for (std::size_t c = 0; c < kColumns; ++c) columns[c] += x[i + c];
  }
  for (std::size_t c = 0; i < x.size(); ++i, ++c) columns[c] += x[i];
  double sum = 0;
  for (const float column : columns) sum += column;
  return sum < 0;
}

// Per neuron, the paper's pruning (that of TIES-merging, arXiv 2306.01708) elects the sign that has
// more weight and leaves out what is of the other sign, or small. A codec sees no neurons: here it
// is each 256 elements, which are within one or a few of them. Those of the other sign go first,
// the smallest first, then the smallest of the elected one, until just as many are left out as is
// asked.
//
// A block: a bit for each element, 1 where it is kept; then the kept values, in order, as bf16.
class SignPrune final : public Codec {
 public:
  explicit SignPrune(int percent) : percent_(static_cast<std::size_t>(percent)) {}

  std::string name() const override { return fmt::format("sign_prune:{}", percent_); }
  std::size_t block_elements() const override { return kBlock; }

 protected:
  std::size_t block_bytes(std::size_t n) const override {
    return bitmap_bytes(n) + kept(n) * sizeof(Bf16);
  }

  void encode_block(std::span<const float> x, std::byte* out) const override {
    require_encodable("sign_prune", x);
    // As signed integers, the bits of positive f32 order as their magnitudes, those of negative
    // ones likewise but below zero: just what is to be kept last to first, if the elected sign is
    // plus.
    const std::int32_t flip = elects_negative(x) ? std::bit_cast<std::int32_t>(0x80000000U) : 0;
    std::int32_t keys[kBlock];
    for (std::size_t i = 0; i < x.size(); ++i) keys[i] = std::bit_cast<std::int32_t>(x[i]) ^ flip;
    std::uint64_t bitmap[kBlock / 64];
    select_largest({keys, x.size()}, kept(x.size()), bitmap);
    float values[kBlock];
    std::size_t count = 0;
    for_each_bit(bitmap, (x.size() + 63) / 64, [&](std::size_t i) { values[count++] = x[i]; });
    Bf16 narrow[kBlock];
    simd::narrow_rows(1, count, {values, kBlock}, {narrow, kBlock});
    std::memcpy(out, bitmap, bitmap_bytes(x.size()));
    std::memcpy(out + bitmap_bytes(x.size()), narrow, count * sizeof(Bf16));
  }

  void decode_block(const std::byte* bytes, std::span<float> out) const override {
    const std::size_t count = kept(out.size());
    std::uint8_t bitmap[kBlock / 8] = {};
    std::memcpy(bitmap, bytes, bitmap_bytes(out.size()));
    require_bitmap(bitmap, out.size());
    Bf16 narrow[kBlock];
    std::memcpy(static_cast<void*>(narrow), bytes + bitmap_bytes(out.size()), count * sizeof(Bf16));
    // One more: behind the last value is read, and not used.
    float values[kBlock + 1];
    simd::widen_rows(1, count, {narrow, kBlock}, {values, kBlock});
    values[count] = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (magnitude_bits(values[i]) <= kLimitBits) continue;
      throw damaged_error("codec {}: a block has the value {}", name(), values[i]);
    }
    // Without a branch, which would be mispredicted every other time.
    std::size_t next = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint32_t is_kept = bitmap[i / 8] >> (i % 8) & 1U;
      out[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[next]) & (0U - is_kept));
      next += is_kept;
    }
  }

 private:
  static std::size_t bitmap_bytes(std::size_t n) { return (n + 7) / 8; }
  std::size_t kept(std::size_t n) const { return n - n * percent_ / 100; }

  void require_bitmap(const std::uint8_t* bitmap, std::size_t n) const {
    std::size_t bits = 0;
    for (std::size_t i = 0; i < bitmap_bytes(n); ++i) {
      bits += static_cast<std::size_t>(std::popcount(bitmap[i]));
    }
    const bool is_clean = n % 8 == 0 || bitmap[n / 8] >> (n % 8) == 0;
    if (is_clean && bits == kept(n)) return;
    throw damaged_error("codec {}: a block of {} elements marks {} as kept, which must be {}",
                        name(), n, bits, kept(n));
  }

  std::size_t percent_;
};

}  // namespace

std::unique_ptr<Codec> make_sign_prune(std::string_view parameters) {
  if (parameters.empty()) return std::make_unique<SignPrune>(50);
  const auto percent = whole_number(parameters, 1, 99);
  if (!percent) {
    throw user_error(
        "codec 'sign_prune:{}': give the percent to leave out, from 1 to 99, as in sign_prune:50",
        parameters);
  }
  return std::make_unique<SignPrune>(*percent);
}

}  // namespace atl::compress
