#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "atoll/base/rng.h"

namespace atl::tune {

/// What a draw of a study is for; two purposes never share one.
enum class DrawFor : std::uint32_t {
  kRandom = 1,
  kQuasiRandom = 2,
  kTpe = 3,
  kModel = 4,
  kAcquisition = 5,
  kCmaEs = 7,
  kExploit = 8,
  kExplore = 9,
  kWeights = 10,
  kImportance = 11,
  kBandit = 12,
};

/// Draws in order, of a stream that (seed, purpose, number) names; the same every time.
class Draws {
 public:
  Draws(std::uint64_t seed, DrawFor purpose, std::uint64_t number)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                 static_cast<std::uint32_t>(purpose)} {}

  /// Uniform in [0, 1) with 53 random bits.
  double uniform() {
    const std::uint64_t high = word(), low = word();
    return static_cast<double>(((high << 32) | low) >> 11) * 0x1p-53;
  }
  /// Uniform in 0 .. count - 1.
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }
  /// Standard normal (Box-Muller).
  double normal() {
    const double u = 1 - uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
  }

 private:
  std::uint32_t word() {
    if (used_ == block_.size()) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_ = {};
  std::size_t used_ = 4;
};

}  // namespace atl::tune
