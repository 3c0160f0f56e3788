// Products of small tiles for the attention kernels, with what happens to a result while it is in
// registers. Compiled once per instruction set: include this after hwy/highway.h in a file that
// foreach_target.h re-includes.

#if defined(ATOLL_OPS_CPU_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATOLL_OPS_CPU_ATTENTION_PRODUCT_INL_H_
#undef ATOLL_OPS_CPU_ATTENTION_PRODUCT_INL_H_
#else
#define ATOLL_OPS_CPU_ATTENTION_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "atoll/ops/cpu/lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kLanes = hn::MaxLanes(F32());
// Accumulators plus the vectors of b and one broadcast must fit the registers: 32 of them where
// vectors are 64 bytes wide, else (at least) 16.
constexpr std::size_t kKernelRows = 6;
constexpr std::size_t kKernelVecs = kLanes >= 16 ? 4 : 2;

/// The left operand of a product: element (i, k) is data[i * row + k * column]. It is read one
/// element at a time and broadcast, so any strides serve, and a transpose costs nothing.
struct Left {
  const float* data;
  std::size_t row;
  std::size_t column;
};
/// Rows of vectors: the right operand or the result of a product.
template <typename T>
struct Rows {
  T* data;
  std::size_t stride;

  HWY_INLINE T* at(std::size_t row, std::size_t column) const {
    return data + row * stride + column;
  }
};

/// Rows that will be read or written soon. Each piece of a product asks for a few of them, so that
/// they come from memory beside the arithmetic. Asking for all at once would not do: what is asked
/// for while too much is under way is dropped.
class Ahead {
 public:
  /// Asks for num_rows rows of D elements, in the place of what was left of stretch `i`; lower
  /// stretches go first.
  template <class T>
  HWY_INLINE void set(std::size_t i, const T* rows, std::size_t stride, std::size_t num_rows,
                      std::size_t D) {
    stretches_[i] = {reinterpret_cast<const char*>(rows), stride * sizeof(T), D * sizeof(T),
                     num_rows};
  }
  HWY_INLINE void ask() {
    for (Stretch& stretch : stretches_) {
      if (stretch.num_rows == 0) continue;
      ask(stretch);
      if (stretch.num_rows != 0) ask(stretch);
      return;
    }
  }

 private:
  struct Stretch {
    const char* row;
    std::size_t stride;
    std::size_t size;
    std::size_t num_rows;
  };

  // Into the second-level cache: the first one is full of what the products need now.
  static HWY_INLINE void ask(Stretch& stretch) {
    for (std::size_t i = 0; i < stretch.size; i += 64) __builtin_prefetch(stretch.row + i, 0, 2);
    stretch.row += stretch.stride;
    --stretch.num_rows;
  }

  Stretch stretches_[6] = {};
};

// What becomes of a product is a type of its own, `Into`, with the rows of its result as `c`:
// end(p, row, v, sum, state) takes the sum of the element at p, in vector v of its row.
// state = load(v) comes before the rows of a kernel and save(v, state) after them. from(row, v) is
// the same seen from another corner.

struct NoState {};

/// c = a b.
struct StoreTo {
  Rows<float> c;

  HWY_INLINE StoreTo from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}};
  }
  HWY_INLINE NoState load(std::size_t) const { return {}; }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, NoState&) const {
    hn::StoreU(sum, F32(), p);
  }
  HWY_INLINE void save(std::size_t, NoState) const {}
};

/// c += a b.
struct AddTo {
  Rows<float> c;

  HWY_INLINE AddTo from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}};
  }
  HWY_INLINE NoState load(std::size_t) const { return {}; }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, NoState&) const {
    const F32 d;
    hn::StoreU(hn::Add(sum, hn::LoadU(d, p)), d, p);
  }
  HWY_INLINE void save(std::size_t, NoState) const {}
};

/// c = factor c + a b, with a factor per column.
struct ScaleAndAddTo {
  Rows<float> c;
  const float* factor;

  HWY_INLINE ScaleAndAddTo from(std::size_t row, std::size_t v) const {
    return {{c.at(row, v * kLanes), c.stride}, factor + v * kLanes};
  }
  HWY_INLINE Vf load(std::size_t v) const { return hn::LoadU(F32(), factor + v * kLanes); }
  HWY_INLINE void end(float* p, std::size_t, std::size_t, Vf sum, Vf scale) const {
    const F32 d;
    hn::StoreU(hn::MulAdd(scale, hn::LoadU(d, p), sum), d, p);
  }
  HWY_INLINE void save(std::size_t, Vf) const {}
};

// kNumRows rows and kNumVecs vectors, of which all sums are in registers; a sum runs over k in
// order. What was there before is added after it, not first: then nothing waits for it, and no
// address is computed before the loop and spilled over it. Operands come as numbers, which calls
// pass in registers: structures go over the stack, are read back in other pieces than they were
// written in, and each call waited 50 cycles for that. `into` is a copy, which no store to floats
// can change, and is not needed before the end.
template <std::size_t kNumRows, std::size_t kNumVecs, class Into>
HWY_NOINLINE void product_kernel(std::size_t num_k, const float* a, std::size_t a_row,
                                 std::size_t a_column, const float* b, std::size_t b_stride,
                                 Into into) {
  const F32 d;
  Vf sum[kNumRows][kNumVecs];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kNumRows; ++i) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) sum[i][v] = hn::Zero(d);
  }
  for (std::size_t k = 0; k < num_k; ++k, a += a_column, b += b_stride) {
    Vf right[kNumVecs];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) right[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kNumRows; ++i) {
      const Vf left = hn::Set(d, a[i * a_row]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kNumVecs; ++v) {
        sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
      }
    }
  }
  decltype(into.load(0)) state[kNumVecs];
#pragma GCC unroll 8
  for (std::size_t v = 0; v < kNumVecs; ++v) state[v] = into.load(v);
  float* to = into.c.data;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kNumRows; ++i, to += into.c.stride) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kNumVecs; ++v) {
      into.end(to + v * kLanes, i, v, sum[i][v], state[v]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t v = 0; v < kNumVecs; ++v) into.save(v, state[v]);
}

template <std::size_t kNumVecs, class Into>
HWY_INLINE void product_columns(std::size_t m, std::size_t num_k, Left a, Rows<const float> b,
                                std::size_t vec, const Into& into, Ahead& ahead) {
  const float* right = b.data + vec * kLanes;
  for (std::size_t row = 0; row < m;) {
    const std::size_t left_over = m - row;
    const float* left = a.data + row * a.row;
    ahead.ask();
    // 8 rows are 4 + 4 rather than 6 + 1 + 1.
    if (left_over >= kKernelRows && left_over != 8 && left_over != 9) {
      product_kernel<kKernelRows, kNumVecs>(num_k, left, a.row, a.column, right, b.stride,
                                            into.from(row, vec));
      row += kKernelRows;
    } else if (left_over >= 4) {
      product_kernel<4, kNumVecs>(num_k, left, a.row, a.column, right, b.stride,
                                  into.from(row, vec));
      row += 4;
    } else {
      product_kernel<1, kNumVecs>(num_k, left, a.row, a.column, right, b.stride,
                                  into.from(row, vec));
      row += 1;
    }
  }
}

/// Hands a (m, k) b (k, num_vecs vectors) to `into`, every element once.
template <class Into>
HWY_INLINE void product(std::size_t m, std::size_t num_vecs, std::size_t num_k, Left a,
                        Rows<const float> b, const Into& into, Ahead& ahead) {
  for (std::size_t vec = 0; vec < num_vecs;) {
    // Even shares: 5 vectors are 3 + 2 rather than 4 + 1, which would be bound by latency.
    const std::size_t left = num_vecs - vec;
    const std::size_t shares = (left + kKernelVecs - 1) / kKernelVecs;
    const std::size_t share = (left + shares - 1) / shares;
    if constexpr (kKernelVecs >= 4) {
      if (share == 4) product_columns<4>(m, num_k, a, b, vec, into, ahead);
      if (share == 3) product_columns<3>(m, num_k, a, b, vec, into, ahead);
    }
    if (share == 2) product_columns<2>(m, num_k, a, b, vec, into, ahead);
    if (share == 1) product_columns<1>(m, num_k, a, b, vec, into, ahead);
    vec += share;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // ATOLL_OPS_CPU_ATTENTION_PRODUCT_INL_H_
