#include <algorithm>
#include <cmath>

#include "atoll/ckpt/gguf/k_fit.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

constexpr int kSubBlock = 16;
constexpr int kNumSubBlocks = kSuperBlock / kSubBlock;
constexpr int kLanes = 8;

struct Numbers {
  const float* x;  // (16)
  const float* w;  // (16)
};

using Codes = std::array<std::int32_t, kSubBlock>;

float sum_of(const float (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// What codes say of the scale: the best is wqx / wqq, and wqx^2 / wqq the error that it saves.
struct Products {
  float wqx = 0;
  float wqq = 0;

  float scale() const { return wqq > 0 ? wqx / wqq : 0; }
  float saved() const { return wqq > 0 ? wqx * scale() : 0; }
  // Of a given scale: the error without any scale minus the error with it.
  float saved_by(float scale) const { return scale * (2 * wqx - scale * wqq); }
};

class Search {
 public:
  Search(SuperBlock x, SuperBlock weights, int lowest_code, int lowest_scale)
      : x_(x), weights_(weights), lowest_code_(lowest_code), lowest_scale_(lowest_scale) {
    float largest = 0;
    for (int b = 0; b < kNumSubBlocks; ++b) {
      const float scale = best_scale(numbers(b));
      wanted_[static_cast<std::size_t>(b)] = scale;
      if (std::abs(scale) > std::abs(largest)) largest = scale;
    }
    // The largest becomes the lowest integer, which lies farther from 0 than the highest.
    fit_.scale = nonzero_f16(largest / static_cast<float>(lowest_scale));
  }

  SymmetricFit run() {
    SymmetricFit best;
    float most = -1;
    for (int round = 0; round < 4; ++round) {
      float saved = 0;
      for (int b = 0; b < kNumSubBlocks; ++b) saved += choose_integer(b);
      if (!(saved > most)) break;
      most = saved;
      best = fit_;
      refit_scale();
    }
    return best;
  }

 private:
  Numbers numbers(int b) const {
    return {x_.data() + b * kSubBlock, weights_.data() + b * kSubBlock};
  }

  Products round_to(Numbers numbers, float scale, Codes& codes) const {
    const float inverse = scale != 0 ? 1 / scale : 0;
    const auto shift = static_cast<float>(-lowest_code_);
    const auto largest = static_cast<float>(-2 * lowest_code_ - 1);
    float wqx[kLanes] = {};
    float wqq[kLanes] = {};
    for (int i = 0; i < kSubBlock; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        const float x = numbers.x[i + j];
        const float place = std::min(std::max(x * inverse + shift, 0.0F), largest);
        const std::int32_t code = static_cast<std::int32_t>(place + 0.5F) + lowest_code_;
        const auto q = static_cast<float>(code);
        codes[static_cast<std::size_t>(i + j)] = code;
        wqx[j] += numbers.w[i + j] * q * x;
        wqq[j] += numbers.w[i + j] * q * q;
      }
    }
    return {sum_of(wqx), sum_of(wqq)};
  }

  // The best scale of a sub-block, whatever the others need. Its sign says which end of the numbers
  // gets the lowest code.
  float best_scale(Numbers numbers) const {
    float extreme = 0;
    for (int i = 0; i < kSubBlock; ++i) {
      if (std::abs(numbers.x[i]) > std::abs(extreme)) extreme = numbers.x[i];
    }
    if (extreme == 0) return 0;
    float best = 0;
    float most = 0;
    // From codes left out to ends cut off, with either sign.
    for (float more = -1.2F; more < 1.5F; more += 0.3F) {
      for (const float sign : {1.0F, -1.0F}) {
        float scale = sign * extreme / (static_cast<float>(lowest_code_) - more);
        for (int round = 0; round < 2; ++round) {
          Codes codes;
          const Products products = round_to(numbers, scale, codes);
          if (!(products.saved() > most)) break;
          most = products.saved();
          best = products.scale();
          scale = best;
        }
      }
    }
    return best;
  }

  // The best integer for a sub-block's scale, at or beside the rounded one, with its codes; returns
  // how much error these save.
  float choose_integer(int b) {
    const auto at = static_cast<std::size_t>(b);
    const float unit = f16_to_f32(fit_.scale);
    if (unit == 0) return 0;
    const auto lowest = static_cast<float>(lowest_scale_);
    const float place = std::clamp(wanted_[at] / unit, lowest, -lowest - 1);
    const int nearest = static_cast<int>(std::lround(place));
    float most = -1;
    for (int s = std::max(nearest - 1, lowest_scale_);
         s <= std::min(nearest + 1, -lowest_scale_ - 1); ++s) {
      Codes codes;
      const float scale = unit * static_cast<float>(s);
      const float saved = round_to(numbers(b), scale, codes).saved_by(scale);
      if (!(saved > most)) continue;
      most = saved;
      fit_.scales[at] = static_cast<std::int8_t>(s);
      std::copy(codes.begin(), codes.end(), fit_.codes.begin() + b * kSubBlock);
    }
    return std::max(most, 0.0F);
  }

  // The f16 number of least squares for the integers as they are now.
  void refit_scale() {
    double aa = 0;
    double ax = 0;
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const double a = fit_.scales[i / kSubBlock] * fit_.codes[i];
      aa += weights_[i] * a * a;
      ax += weights_[i] * a * x_[i];
    }
    if (aa > 0) fit_.scale = nonzero_f16(static_cast<float>(ax / aa));
  }

  SuperBlock x_;
  SuperBlock weights_;
  int lowest_code_;
  int lowest_scale_;
  std::array<float, kNumSubBlocks> wanted_ = {};
  SymmetricFit fit_;
};

}  // namespace

SymmetricFit fit_symmetric(SuperBlock x, SuperBlock weights, int lowest_code, int lowest_scale) {
  return Search(x, weights, lowest_code, lowest_scale).run();
}

}  // namespace atl::ckpt
