#pragma once

// Elements of an Int8Matrix (ops/int8/int8.h) in kernels.

#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// Neighbours in a row of an Int8Matrix that share a factor: kInt8Group of ops/int8/int8.h.
constexpr int kScaleGroup = 64;

/// What a byte of an Int8Matrix stands for, but for its factor.
ATOLL_DEVICE int int8_of(std::uint8_t byte) {
  return static_cast<std::int8_t>(byte);
}
ATOLL_DEVICE float widened(std::uint8_t byte) {
  return static_cast<float>(int8_of(byte));
}

/// Factors of a row of k elements.
ATOLL_HOST_AND_DEVICE constexpr std::int64_t num_scales(std::int64_t k) {
  return (k + kScaleGroup - 1) / kScaleGroup;
}

}  // namespace atl::ops::cuda
