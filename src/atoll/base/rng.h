#pragma once

// Counter-based random numbers: a draw is a pure function of what it is for, so no generator state
// exists that a checkpoint could save wrongly and no order of evaluation changes a draw.

#include <array>
#include <cstdint>

namespace atl {

/// What a stream of random numbers is used for; two purposes never share a draw.
enum class RngPurpose : std::uint32_t {
  kInit = 1,       ///< Parameter initialisation; counter: (parameter, element).
  kShuffle = 2,    ///< Sample order; counter: (epoch, round of the permutation).
  kDropout = 3,    ///< Dropout masks; counter: (layer, step, global sample, element).
  kSampling = 4,   ///< Token sampling in generation; counter: (sequence, position).
  kSynthetic = 5,  ///< Data made up for tests and benchmarks.
  kRounding = 6,   ///< Stochastic rounding of parameters; counter: (step, element).
};

/// Four 32-bit words from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3", SC11, section 4.3).
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// Uniform in [0, 1) with 24 random bits, exact in f32.
inline float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

/// A stream of draws named by (seed, purpose, a, b); `block(i)` is its i-th group of four words.
/// a and b say which parameter, layer, step or sample the stream belongs to.
class RngStream {
 public:
  RngStream(std::uint64_t seed, RngPurpose purpose, std::uint64_t a = 0, std::uint64_t b = 0);

  /// Words 4i .. 4i+3 of the stream. Any i, in any order, from any thread.
  std::array<std::uint32_t, 4> block(std::uint64_t i) const {
    return philox(
        {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), salt_[0], salt_[1]},
        key_);
  }
  /// What names the stream to Philox: its key, and the upper half of every counter. For code that
  /// draws many blocks at once and must give the same words.
  std::array<std::uint32_t, 2> key() const { return key_; }
  std::array<std::uint32_t, 2> salt() const { return salt_; }
  /// Word i of the stream.
  std::uint32_t word(std::uint64_t i) const { return block(i / 4)[i % 4]; }
  /// Uniform in [0, 1), element i.
  float uniform(std::uint64_t i) const { return to_uniform(word(i)); }
  /// Standard normal, element i (Box-Muller on words 2i and 2i+1).
  float normal(std::uint64_t i) const;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> salt_;
};

}  // namespace atl
