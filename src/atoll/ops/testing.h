#pragma once

// What the tests of ops and layers share: tensors that own their memory, a Run on a small CPU
// device, errors of one tensor against another, and finite differences. Depends on no test library.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "atoll/base/rng.h"
#include "atoll/ops/run.h"

namespace atl::test {

/// A Run over a CPU device of its own; `run` stays valid as long as this lives.
struct TestRun {
  explicit TestRun(int threads = 2, std::size_t scratch_bytes = std::size_t{64} << 20)
      : device(open_cpu(threads)), stream(*device), scratch(*device, scratch_bytes) {
    run.stream = &stream;
    run.scratch = {static_cast<std::byte*>(scratch.data()), scratch_bytes};
    run.training = true;
  }
  TestRun(const TestRun&) = delete;
  TestRun& operator=(const TestRun&) = delete;

  operator Run&() { return run; }  // NOLINT: a test passes `run` where an op takes a Run&

  std::unique_ptr<Device> device;
  Stream stream;
  Buffer scratch;
  Run run;
};

/// A number of another element type: exact, or rounded as that type rounds.
template <typename To, typename From>
To number(From value) {
  if constexpr (std::is_same_v<From, Bf16>)
    return number<To>(to_f32(value));
  else if constexpr (std::is_same_v<To, Bf16>)
    return to_bf16(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

/// A tensor that owns its elements; aligned like a std::vector, so less than an Arena's tensors.
template <typename T>
struct OwnedTensor {
  OwnedTensor() = default;
  explicit OwnedTensor(Shape tensor_shape, T value = T{})
      : shape(tensor_shape), values(static_cast<std::size_t>(shape.num_elements()), value) {}

  Tensor view() { return {values.data(), {dtype_of<T>(), shape}}; }
  operator Tensor() { return view(); }  // NOLINT: a test passes it where an op takes a Tensor
  T& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  T operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }

  /// The same elements in another type.
  template <typename U>
  OwnedTensor<U> as() const {
    OwnedTensor<U> result(shape);
    std::transform(values.begin(), values.end(), result.values.begin(),
                   [](T value) { return number<U>(value); });
    return result;
  }

  friend bool operator==(const OwnedTensor&, const OwnedTensor&) = default;

  Shape shape;
  std::vector<T> values;
};

/// Uniform in [-scale, scale), each an f32 number: the same seed gives the same numbers in f32 and
/// in f64, so that a comparison of the two sees the op's rounding alone. In bf16 they are rounded.
template <typename T>
OwnedTensor<T> random_tensor(Shape shape, std::uint64_t seed, float scale = 1.0F) {
  const RngStream stream(seed, RngPurpose::kSynthetic);
  OwnedTensor<T> result(shape);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const float draw = 2.0F * stream.uniform(static_cast<std::uint64_t>(i)) - 1.0F;
    result[i] = number<T>(scale * draw);
  }
  return result;
}

/// i32 draws, uniform in [0, bound).
inline OwnedTensor<std::int32_t> random_tokens(Shape shape, std::int64_t bound,
                                               std::uint64_t seed) {
  const RngStream stream(seed, RngPurpose::kSynthetic, 1);
  OwnedTensor<std::int32_t> result(shape);
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const std::uint32_t word = stream.word(static_cast<std::uint64_t>(i));
    result[i] = static_cast<std::int32_t>(word % static_cast<std::uint32_t>(bound));
  }
  return result;
}

/// max |a - b|; infinite when a NaN is in either or the sizes differ.
template <typename T, typename U>
double max_abs_difference(const OwnedTensor<T>& a, const OwnedTensor<U>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(number<double>(a[i]) - number<double>(b[i]));
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

/// How far the nearest bf16 may be from a number of this size: half a unit of its eighth bit.
inline double bf16_half_ulp(double value) {
  return value == 0 ? 0 : std::ldexp(1.0, std::ilogb(value) - 8);
}

/// max (|a - b| - bf16_half_ulp(b)), or 0: how far `a` is from the truth `b`, beyond the one
/// rounding that storing it took. Infinite when a NaN is in either or the sizes differ.
inline double max_error_beyond_rounding(const OwnedTensor<Bf16>& a, const OwnedTensor<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(number<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference - bf16_half_ulp(b[i]));
  }
  return worst;
}

/// max |a|.
template <typename T>
double max_abs(const OwnedTensor<T>& a) {
  return max_abs_difference(a, OwnedTensor<T>(a.shape));
}

/// max |a - b| / max |b|: the error of `a` against the truth `b`, relative to b's largest element
/// (elements near zero come from cancellation and have no relative accuracy to speak of).
template <typename T, typename U>
double max_relative_error(const OwnedTensor<T>& a, const OwnedTensor<U>& b) {
  const double difference = max_abs_difference(a, b);
  return difference == 0 ? 0 : difference / max_abs(b);
}

/// d loss()/d x by central differences, (loss(x + h) - loss(x - h)) / 2h, one element after the
/// other; loss reads x's elements, which are put back. The truncation error is O(h^2), the rounding
/// error O(eps loss / h): with the default h about 1e-10 of a loss and derivatives of order 1.
template <typename Loss>
OwnedTensor<double> finite_difference(OwnedTensor<double>& x, Loss&& loss, double h = 1e-5) {
  OwnedTensor<double> gradient(x.shape);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * h);
  }
  return gradient;
}

/// sum of a * b: with a random `b`, a scalar loss whose gradient for `a` is `b`.
inline double dot(const OwnedTensor<double>& a, const OwnedTensor<double>& b) {
  ATOLL_CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace atl::test
