#include <algorithm>
#include <cmath>

#include "atoll/ckpt/gguf/k_fit.h"
#include "atoll/ckpt/safetensors/convert.h"

namespace atl::ckpt {

namespace {

constexpr int kSubBlock = 32;
constexpr int kNumSubBlocks = kSuperBlock / kSubBlock;
constexpr int kLargestScale = 63;
// Sums are kept in so many lanes, which compilers turn into vector registers.
constexpr int kLanes = 8;

// y = scale code - min; both are at least 0, as the format has no signs for them.
struct Line {
  float scale = 0;
  float min = 0;
};

struct Numbers {
  const float* x;  // (32)
  const float* w;  // (32)
};

using Codes = std::array<std::int32_t, kSubBlock>;

float sum_of(const float (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Rounds to the nearest codes of a line; returns the weighted squared error.
float round_to(Numbers numbers, Line line, int largest_code, Codes& codes) {
  const float inverse = line.scale > 0 ? 1 / line.scale : 0;
  const auto largest = static_cast<float>(largest_code);
  float errors[kLanes] = {};
  for (int i = 0; i < kSubBlock; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float x = numbers.x[i + j];
      const float place = std::min(std::max((x + line.min) * inverse, 0.0F), largest);
      const auto code = static_cast<std::int32_t>(place + 0.5F);
      const float off = line.scale * static_cast<float>(code) - line.min - x;
      codes[static_cast<std::size_t>(i + j)] = code;
      errors[j] += numbers.w[i + j] * off * off;
    }
  }
  return sum_of(errors);
}

// The line of least weighted squares for given codes; scale 0 where they do not say one.
Line least_squares(Numbers numbers, const Codes& codes) {
  float w[kLanes] = {};
  float wx[kLanes] = {};
  float wq[kLanes] = {};
  float wqq[kLanes] = {};
  float wqx[kLanes] = {};
  for (int i = 0; i < kSubBlock; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const auto q = static_cast<float>(codes[static_cast<std::size_t>(i + j)]);
      const float weight = numbers.w[i + j];
      const float x = numbers.x[i + j];
      w[j] += weight;
      wx[j] += weight * x;
      wq[j] += weight * q;
      wqq[j] += weight * q * q;
      wqx[j] += weight * q * x;
    }
  }
  const double sum_w = sum_of(w);
  const double sum_x = sum_of(wx);
  const double sum_q = sum_of(wq);
  const double sum_qq = sum_of(wqq);
  const double sum_qx = sum_of(wqx);
  const double determinant = sum_w * sum_qq - sum_q * sum_q;
  if (determinant > 0) {
    const double scale = (sum_w * sum_qx - sum_x * sum_q) / determinant;
    const double min = (sum_q * sum_qx - sum_qq * sum_x) / determinant;
    if (min >= 0) return {static_cast<float>(scale), static_cast<float>(min)};
  }
  return {sum_qq > 0 ? static_cast<float>(sum_qx / sum_qq) : 0, 0};
}

// The best line of a sub-block, whatever the other sub-blocks need.
Line best_line(Numbers numbers, int largest_code) {
  const auto [lowest, highest] = std::minmax_element(numbers.x, numbers.x + kSubBlock);
  const float low = std::min(*lowest, 0.0F);
  const float range = *highest - low;
  if (!(range > 0)) return {0, -low};
  Line best;
  float least = -1;
  // Steps larger than the range needs leave codes out; smaller ones cut the ends off, which pays
  // where these have little weight. Beyond these bounds nothing was found on normal and on
  // heavy-tailed numbers.
  for (float more = -1.2F; more < 3; more += 0.3F) {
    Line line = {range / (static_cast<float>(largest_code) + more), -low};
    if (more > 0) line.min = std::max(0.0F, line.min - 0.5F * more * line.scale);
    for (int round = 0; round < 3; ++round) {
      Codes codes;
      const float error = round_to(numbers, line, largest_code, codes);
      if (least < 0 || error < least) {
        least = error;
        best = line;
      } else if (round > 0) {
        break;
      }
      line = least_squares(numbers, codes);
      if (!(line.scale > 0)) break;
    }
  }
  return best;
}

// A super-block on its way, with the lines that its sub-blocks want.
class Search {
 public:
  Search(SuperBlock x, SuperBlock weights, int largest_code)
      : x_(x), weights_(weights), largest_code_(largest_code) {
    float scale = 0;
    float min = 0;
    for (int b = 0; b < kNumSubBlocks; ++b) {
      lines_[static_cast<std::size_t>(b)] = best_line(numbers(b), largest_code);
      scale = std::max(scale, lines_[static_cast<std::size_t>(b)].scale);
      min = std::max(min, lines_[static_cast<std::size_t>(b)].min);
    }
    fit_.scale = nonzero_f16(scale / kLargestScale);
    fit_.min = nonzero_f16(min / kLargestScale);
  }

  AffineFit run() {
    AffineFit best;
    float least = -1;
    for (int round = 0; round < 4; ++round) {
      float error = 0;
      for (int b = 0; b < kNumSubBlocks; ++b) error += choose_integers(b);
      if (least >= 0 && !(error < least)) break;
      least = error;
      best = fit_;
      refit_scales();
    }
    return best;
  }

 private:
  Numbers numbers(int b) const {
    return {x_.data() + b * kSubBlock, weights_.data() + b * kSubBlock};
  }

  // The best integers for a sub-block's scale and min, at or beside the rounded ones, with its
  // codes; returns the error.
  float choose_integers(int b) {
    const auto at = static_cast<std::size_t>(b);
    const Candidates scales = candidates(lines_[at].scale, f16_to_f32(fit_.scale));
    const Candidates mins = candidates(lines_[at].min, f16_to_f32(fit_.min));
    float least = -1;
    for (int s = scales.first; s <= scales.last; ++s) {
      for (int m = mins.first; m <= mins.last; ++m) {
        const Line line = {f16_to_f32(fit_.scale) * static_cast<float>(s),
                           f16_to_f32(fit_.min) * static_cast<float>(m)};
        Codes codes;
        const float error = round_to(numbers(b), line, largest_code_, codes);
        if (least >= 0 && !(error < least)) continue;
        least = error;
        fit_.scales[at] = static_cast<std::uint8_t>(s);
        fit_.mins[at] = static_cast<std::uint8_t>(m);
        std::copy(codes.begin(), codes.end(), fit_.codes.begin() + b * kSubBlock);
      }
    }
    return least;
  }

  struct Candidates {
    int first;
    int last;
  };
  static Candidates candidates(float wanted, float unit) {
    if (!(unit > 0)) return {0, 0};
    const float place = std::min(wanted / unit, static_cast<float>(kLargestScale));
    const int nearest = static_cast<int>(place + 0.5F);
    return {std::max(nearest - 1, 0), std::min(nearest + 1, kLargestScale)};
  }

  // The two f16 numbers of least squares for the integers as they are now.
  void refit_scales() {
    double aa = 0;
    double ab = 0;
    double bb = 0;
    double ax = 0;
    double bx = 0;
    for (std::size_t i = 0; i < kSuperBlock; ++i) {
      const double w = weights_[i];
      const double a = fit_.scales[i / kSubBlock] * fit_.codes[i];
      const double b = -static_cast<double>(fit_.mins[i / kSubBlock]);
      aa += w * a * a;
      ab += w * a * b;
      bb += w * b * b;
      ax += w * a * x_[i];
      bx += w * b * x_[i];
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
      take((ax * bb - bx * ab) / determinant, (bx * aa - ax * ab) / determinant);
    } else if (aa > 0 && bb == 0) {
      take(ax / aa, 0);
    } else if (bb > 0 && aa == 0) {
      take(0, bx / bb);
    }
  }
  void take(double scale, double min) {
    if (scale < 0 || min < 0) return;
    fit_.scale = nonzero_f16(static_cast<float>(scale));
    fit_.min = nonzero_f16(static_cast<float>(min));
  }

  SuperBlock x_;
  SuperBlock weights_;
  int largest_code_;
  std::array<Line, kNumSubBlocks> lines_ = {};
  AffineFit fit_;
};

}  // namespace

AffineFit fit_affine(SuperBlock x, SuperBlock weights, int largest_code) {
  return Search(x, weights, largest_code).run();
}

std::uint16_t nonzero_f16(float value) {
  const std::uint16_t bits = f32_to_f16(value);
  constexpr std::uint16_t kSign = 0x8000;
  return value != 0 && (bits & ~kSign) == 0 ? static_cast<std::uint16_t>(bits | 1) : bits;
}

}  // namespace atl::ckpt
