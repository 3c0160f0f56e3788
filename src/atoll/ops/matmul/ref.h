#pragma once

// The reference products: plain loops in any float type, every sum in the order of k. Operands may
// be stored in bf16; sums run in the compute type of c.

#include <algorithm>
#include <type_traits>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/ops/matmul/args.h"
#include "atoll/ops/storage.h"

namespace atl::ops::ref {

/// Where element (i, j) of an operand lies: data[i * row + j * col].
template <typename T>
struct Strided {
  const T* data;
  std::int64_t row;
  std::int64_t col;
};

/// Rows [begin, end) of c = a b [+ bias] [+ c] [+ residual]; a: (M, K), b: (K, N), c: (M, N)
/// contiguous. Tiles of 4 x 4 sums, because one sum alone waits for its own last addition; a tile
/// that hangs over the edge computes its last row or column again and drops it.
template <typename TA, typename TB, typename TC>
void matmul_rows(const MatmulShape& shape, Strided<TA> a, Strided<TB> b, TC* c,
                 const Compute<TC>* bias, bool accumulate, const TC* residual, std::int64_t begin,
                 std::int64_t end) {
  using Sum = Compute<TC>;
  constexpr int kTile = 4;
  for (std::int64_t i = begin; i < end; i += kTile) {
    const TA* a_row[kTile];
    for (int r = 0; r < kTile; ++r) a_row[r] = a.data + std::min(i + r, end - 1) * a.row;
    for (std::int64_t j = 0; j < shape.n; j += kTile) {
      const TB* b_col[kTile];
      for (int s = 0; s < kTile; ++s) b_col[s] = b.data + std::min(j + s, shape.n - 1) * b.col;
      Sum sum[kTile][kTile] = {};
      for (std::int64_t k = 0; k < shape.k; ++k) {
        for (int r = 0; r < kTile; ++r) {
          const Sum value = widen(a_row[r][k * a.col]);
          for (int s = 0; s < kTile; ++s) sum[r][s] += value * widen(b_col[s][k * b.row]);
        }
      }
      for (std::int64_t r = 0; r < std::min<std::int64_t>(kTile, end - i); ++r) {
        for (std::int64_t s = 0; s < std::min<std::int64_t>(kTile, shape.n - j); ++s) {
          TC& out = c[(i + r) * shape.n + j + s];
          Sum before = accumulate ? widen(out) : Sum{0};
          if (residual != nullptr) before += widen(residual[(i + r) * shape.n + j + s]);
          const Sum offset = bias != nullptr ? bias[j + s] : Sum{0};
          out = narrow<TC>(before + offset + sum[r][s]);
        }
      }
    }
  }
}

/// c = op(a) op(b) [+ bias] [+ c] [+ residual], as ops::matmul says; bias, widened, and residual
/// may be nullptr. The types are named, not deduced.
template <typename TA, typename TB = TA, typename TC = TA>
void matmul(ThreadPool& threads, const MatmulShape& shape, const std::type_identity_t<TA>* a,
            const std::type_identity_t<TB>* b, std::type_identity_t<TC>* c, const Compute<TC>* bias,
            bool accumulate, const std::type_identity_t<TC>* residual = nullptr) {
  const bool tn = shape.transpose == Transpose::kTN;
  const bool nt = shape.transpose == Transpose::kNT;
  const Strided<TA> a_at = {a, tn ? 1 : shape.k, tn ? shape.m : 1};
  const Strided<TB> b_at = {b, nt ? 1 : shape.n, nt ? shape.k : 1};
  threads.run_chunked(shape.m, 16, [&](std::int64_t begin, std::int64_t end) {
    matmul_rows(shape, a_at, b_at, c, bias, accumulate, residual, begin, end);
  });
}

/// Calls fn(T{}) with T = float or Bf16.
template <typename Fn>
void with_matmul_storage(Dtype dtype, Fn&& fn) {
  dtype == Dtype::kBf16 ? fn(Bf16{}) : fn(float{});
}

/// The elements of a bias, or none.
template <typename T>
std::vector<T> widened_bias(const Tensor& bias) {
  std::vector<T> values;
  if (!bias.defined()) return values;
  const auto take = [&]<typename Stored>(Stored) {
    for (std::int64_t i = 0; i < bias.num_elements(); ++i) {
      values.push_back(static_cast<T>(widen(bias.data<Stored>()[i])));
    }
  };
  bias.dtype() == Dtype::kF64 ? take(double{}) : with_matmul_storage(bias.dtype(), take);
  return values;
}

/// A checked call in any of the dtypes that ops::matmul takes.
inline void matmul(ThreadPool& threads, const MatmulArgs& args) {
  const auto multiply = [&]<typename TA, typename TB, typename TC>(TA, TB, TC) {
    const auto bias = widened_bias<Compute<TC>>(args.bias);
    matmul<TA, TB, TC>(threads, args.shape, args.a.data<TA>(), args.b.data<TB>(), args.c.data<TC>(),
                       bias.empty() ? nullptr : bias.data(), args.accumulate,
                       args.residual.defined() ? args.residual.data<TC>() : nullptr);
  };
  if (args.c.dtype() == Dtype::kF64) return multiply(double{}, double{}, double{});
  with_matmul_storage(args.a.dtype(), [&](auto a) {
    with_matmul_storage(args.b.dtype(), [&](auto b) {
      with_matmul_storage(args.c.dtype(), [&](auto c) { multiply(a, b, c); });
    });
  });
}

/// dbias += column sums of dy (R, N), row after row.
template <typename T>
void column_sum(std::int64_t rows, std::int64_t n, const T* dy, Compute<T>* dbias) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < n; ++j) dbias[j] += widen(dy[r * n + j]);
  }
}

}  // namespace atl::ops::ref
