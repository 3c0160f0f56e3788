#pragma once

// What the tests of attention share: one call's operands, and how far f32 may be from exact
// arithmetic.

#include <cmath>
#include <vector>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/storage.h"
#include "atoll/ops/targets_testing.h"
#include "atoll/ops/testing.h"

namespace atl::test {

/// One call's operands: B sequences of T rows.
template <typename T>
struct AttentionCall {
  AttentionCall(ops::HeadLayout layout, std::int64_t B, std::int64_t rows, float magnitude = 1.0F)
      : heads(layout),
        scale(1 / std::sqrt(static_cast<double>(layout.head_dim))),
        qkv(random_tensor<T>({B, rows, layout.qkv_width()}, 1, magnitude)),
        dout(random_tensor<T>({B, rows, layout.query_width()}, 2)),
        out({B, rows, layout.query_width()}),
        dqkv({B, rows, layout.qkv_width()}, number<T>(std::nan(""))),
        lse({B, layout.num_heads, rows}) {}

  ops::AttentionMask mask() {
    return {window, positions.size() == 0 ? Tensor() : positions.view()};
  }
  ops::AttentionScores scores() const { return {scale, softcap}; }
  void forward(Run& run) { ops::attention_forward(run, heads, scores(), mask(), qkv, out, lse); }
  void backward(Run& run) {
    ops::attention_backward(run, heads, scores(), mask(), qkv, out, lse, dout, dqkv);
  }
  /// Computes `out` as a generation does: row after row, in chunks of the given lengths.
  void cached(Run& run, std::int64_t capacity, const std::vector<std::int64_t>& chunks);

  ops::HeadLayout heads;
  double scale;
  double softcap = 0;
  std::int64_t window = 0;
  OwnedTensor<std::int32_t> positions;  ///< none when empty
  OwnedTensor<T> qkv, dout, out, dqkv;
  OwnedTensor<ops::Compute<T>> lse;
};

template <typename T>
void AttentionCall<T>::cached(Run& run, std::int64_t capacity,
                              const std::vector<std::int64_t>& chunks) {
  const std::int64_t B = qkv.shape.dim(0);
  OwnedTensor<T> keys({B, capacity, heads.kv_width()}, number<T>(std::nan("")));
  OwnedTensor<T> values = keys;
  std::int64_t before = 0;
  for (const std::int64_t rows : chunks) {
    OwnedTensor<T> new_rows({B, rows, heads.qkv_width()});
    OwnedTensor<T> attended({B, rows, heads.query_width()});
    const auto copy_rows = [&](auto& whole, auto& part, bool into_part) {
      const std::int64_t width = whole.shape.dim(2);
      for (std::int64_t i = 0; i < part.size(); ++i) {
        const std::int64_t b = i / (rows * width);
        const std::int64_t at = (b * whole.shape.dim(1) + before) * width + i % (rows * width);
        (into_part ? part[i] : whole[at]) = into_part ? whole[at] : part[i];
      }
    };
    copy_rows(qkv, new_rows, true);
    ops::attention_cached(run, heads, scores(), {.window = window}, before, new_rows, keys, values,
                          attended);
    copy_rows(out, attended, false);
    before += rows;
  }
}

/// f32 against exact arithmetic, for elements of magnitude m <= 1 and scale = 1 / sqrt(D).
///
/// The sum of D products: after k of them it is near sqrt(k) m^2 / 3, each addition rounds by at
/// most eps / 2 of that, and as a random walk they end at eps D / 8.5 m^2; the worst of 10^5 is 5
/// times that, so a score is off by eps sqrt(D) (also its share of the rounding of scale * q), and
/// a probability by as much, relatively, plus 4 eps for 2^x and the normalisation. The same holds
/// for dP and delta, which enter dS with it: 4 sqrt(D) in all. A sum over n rows adds, as a random
/// walk, sqrt(n) eps times the size of the result.
inline double attention_tolerance(std::int64_t D, std::int64_t n) {
  const double root_d = std::sqrt(static_cast<double>(D));
  const double root_n = std::sqrt(static_cast<double>(n));
  return 0x1p-23 * (8 + 4 * root_d + root_n);
}

/// max |fast - exact| / max(1, max |exact|).
template <typename T>
double error(const OwnedTensor<T>& fast, const OwnedTensor<double>& exact) {
  return test::max_abs_difference(fast, exact) / std::max(1.0, test::max_abs(exact));
}

}  // namespace atl::test
