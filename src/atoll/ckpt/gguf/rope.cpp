#include <algorithm>
#include <cmath>
#include <numbers>

#include "atoll/ckpt/gguf/config.h"

namespace atl::ckpt {

// The definition in transformers' modeling_rope_utils: long waves are stretched by `factor`, short
// ones stay, those between go over smoothly.
std::vector<float> rope_factors(const Llama3Rope& rope, double theta, std::int64_t head_dim) {
  const double low_wavelength = rope.original_positions / rope.low_freq_factor;
  const double high_wavelength = rope.original_positions / rope.high_freq_factor;
  std::vector<float> factors;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const double frequency =
        std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    double factor = 1;
    if (wavelength > low_wavelength) {
      factor = rope.factor;
    } else if (wavelength >= high_wavelength) {
      const double smooth = (rope.original_positions / wavelength - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      factor = 1 / ((1 - smooth) / rope.factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

std::optional<Llama3Rope> find_llama3_rope(const std::vector<float>& factors, double theta,
                                           std::int64_t head_dim, std::int64_t stated) {
  if (factors.empty()) return {};
  Llama3Rope rope;
  // The slowest wave has the whole factor; others can only have less.
  rope.factor = static_cast<double>(factors.back());
  for (const std::int64_t positions : {stated, std::int64_t{8192}}) {
    if (positions <= 0) continue;
    rope.original_positions = static_cast<double>(positions);
    const std::vector<float> made = rope_factors(rope, theta, head_dim);
    // Other writers compute the factors in f32, some ten roundings of 2^-24 each.
    constexpr float kTolerance = 1e-5F;
    const bool agrees =
        std::equal(made.begin(), made.end(), factors.begin(), factors.end(),
                   [](float a, float b) { return std::abs(a - b) <= kTolerance * std::abs(a); });
    if (agrees) return rope;
  }
  return {};
}

}  // namespace atl::ckpt
