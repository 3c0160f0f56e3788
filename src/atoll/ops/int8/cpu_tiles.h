#pragma once

// Products of rounded activations and int8 weights for one thread, 16 rows of weights at a time.
// Each group of kInt8Group terms is summed in integers, which is exact, so that the ways to do it
// give the same bits.

#include <cstdint>

namespace atl::ops::cpu {

/// Rows of x, and of weights, that are computed together.
constexpr std::int64_t kInt8Rows = 16;

/// Rows of x in int8, padded by zeros: to a multiple of kInt8Rows rows, and of kInt8Group terms.
struct RoundedRows {
  std::int64_t count = 0;               ///< rows, without padding
  std::int64_t groups = 0;              ///< of a row
  const std::int8_t* values = nullptr;  ///< (rows, groups * kInt8Group)
  /// Of 16 rows and a group 1 KiB: terms 0 to 3 of the rows, terms 4 to 7, ...; for
  /// int8_slab_amx and int8_slab_vnni.
  const std::int8_t* packed = nullptr;
  const float* scales = nullptr;       ///< of 16 rows and a group 16
  const std::int32_t* sums = nullptr;  ///< of the values in the group, in the same order
};

/// kInt8Rows rows of an Int8Matrix.
struct Int8Slab {
  const std::int8_t* values = nullptr;  ///< the first row; the others follow
  const float* scales = nullptr;
  std::int64_t k = 0;           ///< terms of a row
  std::int64_t skip = 0;        ///< first rows that y does not take
  const float* bias = nullptr;  ///< of the rows, or null
  float* y = nullptr;           ///< where the first row's result with the first row of x goes
  std::int64_t ldy = 0;         ///< from row to row of x
};

/// y[i * ldy + j] = x[i] . w[j] + bias[j] by tiles. Needs simd::has_amx() and a living AmxScope.
void int8_slab_amx(const RoundedRows& x, const Int8Slab& w);
/// The same by AVX-512. Needs simd::has_vnni().
void int8_slab_vnni(const RoundedRows& x, const Int8Slab& w);

/// RoundedRows::packed of 16 rows, `stride` bytes apart. Needs simd::has_vnni().
void int8_pack_rows(const std::int8_t* rows, std::int64_t stride, std::int64_t groups,
                    std::int8_t* to);

}  // namespace atl::ops::cpu
