#pragma once

// Reductions of what ranks have sent to one GPU, in rank order: the bits of reduce_in_order.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "atoll/device/cuda/kernel.h"

namespace atl {

// Defined in simd/bf16.h for the host; the same code serves a GPU.
struct Bf16;
ATOLL_HOST_AND_DEVICE float to_f32(Bf16 value);
ATOLL_HOST_AND_DEVICE Bf16 to_bf16(float value);

}  // namespace atl

#include "atoll/simd/bf16.h"

namespace atl::comm {

/// result = ((p0 op p1) op p2) ..., or (((result op p0) op p1) ...; bf16 in f32, rounded once. Of
/// max and min a NaN wins.
template <typename T>
struct OrderedReduce {
  static constexpr const char* kName = "ordered_reduce";
  static constexpr int kMaxThreads = 256;
  using Wide = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

  cuda::Global<const T> parts;  // (num_parts, count), in rank order
  cuda::Global<T> result;       // (count)
  std::int64_t num_parts = 0;
  std::int32_t reduce = 0;  // as comm::Reduce: sum, max, min
  std::int32_t accumulate = 0;

  ATOLL_DEVICE static Wide widened(T value) {
    if constexpr (std::is_same_v<T, Bf16>)
      return to_f32(value);
    else
      return value;
  }
  ATOLL_DEVICE Wide combined(Wide a, Wide b) const {
    if (reduce == 0) {
      if constexpr (std::is_integral_v<Wide>) {
        using Unsigned = std::make_unsigned_t<Wide>;  // wraps where signed numbers may not
        return static_cast<Wide>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
      } else {
        return a + b;
      }
    }
    const bool is_beyond = reduce == 1 ? a > b : a < b;
    return is_beyond || a != a ? a : b;
  }
  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = std::int64_t{cuda::block_x()} * cuda::num_threads() + cuda::thread();
    if (i >= result.size) return;
    std::int64_t next = 0;
    Wide value = accumulate != 0 ? widened(result.load(i)) : widened(parts.load(i));
    if (accumulate == 0) next = 1;
    for (; next < num_parts; ++next) {
      value = combined(value, widened(parts.load(next * result.size + i)));
    }
    if constexpr (std::is_same_v<T, Bf16>)
      result.store(i, to_bf16(value));
    else
      result.store(i, value);
  }
};

}  // namespace atl::comm
