#pragma once

// What the tests of codecs share.

#include <cmath>
#include <cstdint>
#include <vector>

#include "atoll/base/rng.h"
#include "atoll/compress/codec.h"

namespace atl::test {

/// Values as pseudo-gradients have them, bell-shaped with a few large ones, at a scale of their own
/// for each 1,000; here and there a zero of either sign.
inline std::vector<float> codec_values(std::size_t n, std::uint64_t seed) {
  const RngStream stream(seed, RngPurpose::kSynthetic);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto words = stream.block(i);
    float value = -2;
    for (const std::uint32_t word : words) value += to_uniform(word);
    if (words[0] % 50 == 0) value *= 20;
    if (words[1] % 50 == 0) value = words[2] % 2 == 0 ? 0.0F : -0.0F;
    x[i] = value * std::ldexp(1e-3F, static_cast<int>(i / 1000 % 7) - 3);
  }
  return x;
}

inline std::vector<std::byte> encode(const compress::Codec& codec, const std::vector<float>& x) {
  std::vector<std::byte> bytes;
  codec.encode(x, {}, bytes);
  return bytes;
}

inline std::vector<float> decode(const compress::Codec& codec, std::span<const std::byte> bytes,
                                 std::size_t n) {
  std::vector<float> out(n, -7);
  codec.decode(bytes, out);
  return out;
}

/// Every codec, some with other parameters too.
inline const std::vector<std::string> kCodecSettings = {
    "f32",        "bf16",         "int8",          "int4",          "e3m0",          "topk:64/4096",
    "topk:5/100", "topk:512/512", "sign_prune:25", "sign_prune:50", "sign_prune:75",
};

/// Numbers of elements about which blocks begin, end, and are cut.
inline const std::vector<std::size_t> kCodecSizes = {0,   1,   3,   127,  128,  129,  255,
                                                     256, 257, 511, 1025, 4096, 4097, 9000};

}  // namespace atl::test
