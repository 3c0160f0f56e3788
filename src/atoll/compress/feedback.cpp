#include "atoll/compress/feedback.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/compress/arithmetic.h"
#include "atoll/compress/magnitude.h"

namespace atl::compress {

namespace {

// Of the codecs that begin blocks with a scale.
constexpr std::size_t kMostBlockElements = 256;
using Block = std::array<float, kMostBlockElements>;

// fn(first element, elements, first byte) for each block.
template <typename Fn>
void for_blocks(const Codec& codec, std::size_t n, Fn fn) {
  const std::size_t block = codec.block_elements();
  ATOLL_CHECK(block <= kMostBlockElements, "codec {} has blocks of {}", codec.name(), block);
  const std::size_t bytes = codec.max_bytes(static_cast<std::int64_t>(block));
  std::size_t byte = 0;
  for (std::size_t begin = 0; begin < n; begin += block, byte += bytes) {
    fn(begin, std::min(block, n - begin), byte);
  }
}

std::size_t bytes_of(const Codec& codec, std::size_t n) {
  return codec.max_bytes(static_cast<std::int64_t>(n));
}

}  // namespace

void round_residual(std::span<float> residual) {
  const std::int32_t largest = largest_magnitude_bits(residual);
  if (largest >= kLimitBits) return;  // not finite, or too large for what follows
  // With `power` at least twice the largest magnitude, each sum lies within [power, 2 power), where
  // floats are 2^-23 of power apart: adding and taking away again rounds to that grid.
  const std::int32_t exponent = std::max((largest >> 23) + 2, 1);
  const float offset = 1.5F * std::bit_cast<float>(exponent << 23);
  add_and_subtract(offset, residual);
}

void encode_residual(const Codec& codec, std::span<const float> x, std::span<float> residual,
                     std::span<std::byte> out) {
  ATOLL_CHECK(residual.empty() || residual.size() == x.size(), "{} residuals of {} values",
              residual.size(), x.size());
  ATOLL_CHECK_EQ(out.size(), bytes_of(codec, x.size()));
  for_blocks(codec, x.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    Block sum, said;
    const std::span<float> wanted = std::span(sum).first(count);
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(begin), count, wanted.begin());
    if (!residual.empty()) add_weighted(1, residual.subspan(begin, count), wanted);
    const std::span<std::byte> bytes = out.subspan(byte, bytes_of(codec, count));
    if (largest_magnitude_bits(wanted) >= kLimitBits) {
      const float bad = std::numeric_limits<float>::quiet_NaN();
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      std::memcpy(bytes.data(), &bad, sizeof(bad));
      return;
    }
    codec.encode(wanted, bytes);
    if (residual.empty()) return;
    codec.decode(bytes, std::span(said).first(count));
    subtract(std::span(said).first(count), wanted);
    round_residual(wanted);
    std::copy(wanted.begin(), wanted.end(), residual.begin() + static_cast<std::ptrdiff_t>(begin));
  });
}

void decode_residual(const Codec& codec, std::span<const std::byte> bytes, bool adds,
                     std::span<float> sum) {
  ATOLL_CHECK_EQ(bytes.size(), bytes_of(codec, sum.size()));
  for_blocks(codec, sum.size(), [&](std::size_t begin, std::size_t count, std::size_t byte) {
    Block values;
    const std::span<const std::byte> block = bytes.subspan(byte, bytes_of(codec, count));
    const std::span<float> to = sum.subspan(begin, count);
    float scale = 0;
    std::memcpy(&scale, block.data(), sizeof(scale));
    if (std::isnan(scale)) {
      std::fill(to.begin(), to.end(), scale);
    } else if (!adds) {
      codec.decode(block, to);
    } else {
      codec.decode(block, std::span(values).first(count));
      add_weighted(1, std::span(values).first(count), to);
    }
  });
}

}  // namespace atl::compress
