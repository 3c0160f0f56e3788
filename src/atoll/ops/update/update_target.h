#pragma once

#include "atoll/base/rng.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// The parameters that an optimizer's update changes, and how they are kept. One of
/// - f32 or f64 values, updated as they are;
/// - bf16 values with f32 masters: the masters are updated, the values are their nearest bf16;
/// - bf16 values alone: widened, updated in f32, rounded stochastically.
struct UpdateTarget {
  UpdateTarget() = default;
  UpdateTarget(Tensor held) : values(held) {}  // NOLINT: values alone are a target

  Tensor values;
  Tensor master;  ///< f32, of as many elements; undefined: there are no masters
  /// values[i] is element first_element + i of the flat vector and draws rounding_draw(rounding,
  /// first_element + i), however the vector is cut.
  std::int64_t first_element = 0;
  RngStream rounding = RngStream(0, RngPurpose::kRounding);

  std::int64_t size() const { return values.num_elements(); }
  /// What the update is computed in, and what gradients and moments are: f64 or f32.
  Dtype compute() const { return compute_dtype(values.dtype()); }
};

/// The stream that rounds the parameters of one step.
inline RngStream rounding_stream(std::uint64_t seed, std::int64_t step) {
  return RngStream(seed, RngPurpose::kRounding, static_cast<std::uint64_t>(step));
}

/// The 16 bits that round `element`: half of a word, so that a Philox block serves eight.
inline std::uint16_t rounding_draw(const RngStream& stream, std::int64_t element) {
  const auto i = static_cast<std::uint64_t>(element);
  return static_cast<std::uint16_t>(stream.word(i / 2) >> (16 * (i % 2)));
}

/// Throws Error(kInternal) unless `target` is one of the three kinds and the others are of its
/// compute dtype and size.
void check_update(const char* op, const UpdateTarget& target, std::initializer_list<Tensor> others);

/// master = values: bf16 to f32, exactly.
void widen(Run& run, Tensor values, Tensor master);

}  // namespace atl::ops
