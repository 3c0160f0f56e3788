#include "atoll/base/rng.h"

#include <cmath>
#include <numbers>

namespace atl {

namespace {

std::array<std::uint32_t, 4> mix(std::uint64_t a, std::uint64_t b,
                                 std::array<std::uint32_t, 2> key) {
  return philox({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
                 static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)},
                key);
}

}  // namespace

RngStream::RngStream(std::uint64_t seed, RngPurpose purpose, std::uint64_t a, std::uint64_t b) {
  // Seed, purpose, a and b are 224 bits and a Philox key plus half a counter is 128: hash them
  // down with Philox itself, so that neighbouring seeds and samples share nothing.
  const std::array<std::uint32_t, 2> seed_key = {static_cast<std::uint32_t>(seed),
                                                 static_cast<std::uint32_t>(seed >> 32)};
  const auto first = mix(static_cast<std::uint64_t>(purpose), a, seed_key);
  const auto second = mix(b, (std::uint64_t{first[1]} << 32) | first[0], {first[2], first[3]});
  key_ = {second[0], second[1]};
  salt_ = {second[2], second[3]};
}

float RngStream::normal(std::uint64_t i) const {
  const auto words = block(i / 2);
  const std::size_t half = (i % 2) * 2;
  const float u = 1.0F - to_uniform(words[half]);  // in (0, 1]: log is finite
  const float v = to_uniform(words[half + 1]);
  return std::sqrt(-2.0F * std::log(u)) * std::cos(2.0F * std::numbers::pi_v<float> * v);
}

}  // namespace atl
