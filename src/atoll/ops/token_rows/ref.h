#pragma once

// The definitions of token_rows.h. Threads share out rows of y or of logits, or columns of drows,
// never a sum.

#include <algorithm>
#include <cstdint>

#include "atoll/ops/storage.h"
#include "atoll/ops/token_rows/token_rows.h"

namespace atl::ops::ref {

template <typename T>
void place_token_rows(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor rows,
                      Tensor beside, Tensor y) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t C = y.dim(1);
  const auto s = static_cast<Compute<T>>(scale);
  const auto* ids = tokens.data<std::int32_t>();
  run.threads().run_chunked(y.dim(0), kRowsPerTask, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int32_t slot = slots[static_cast<std::size_t>(ids[i])];
      if (slot < 0) continue;
      const T* from = rows.data<T>() + slot * C;
      const T* shift = beside.defined() ? beside.data<T>() + i * C : nullptr;
      T* to = y.data<T>() + i * C;
      for (std::int64_t c = 0; c < C; ++c) {
        const Compute<T> value = s * widen(from[c]);
        to[c] = narrow<T>(shift == nullptr ? value : value + widen(shift[c]));
      }
    }
  });
}

template <typename T>
void place_token_rows_backward(Run& run, double scale, TokenSlots slots, Tensor tokens, Tensor dy,
                               Tensor drows) {
  using A = Compute<T>;
  constexpr std::int64_t kColumnsPerTask = 64;
  const std::int64_t R = dy.dim(0), C = dy.dim(1);
  const auto s = static_cast<A>(scale);
  const auto* ids = tokens.data<std::int32_t>();
  run.threads().run_chunked(C, kColumnsPerTask, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < R; ++i) {
      const std::int32_t slot = slots[static_cast<std::size_t>(ids[i])];
      if (slot < 0) continue;
      const T* from = dy.data<T>() + i * C;
      A* to = drows.data<A>() + slot * C;
      for (std::int64_t c = first; c < last; ++c) to[c] += s * widen(from[c]);
    }
  });
}

template <typename T>
void take_columns(Run& run, std::span<const std::int64_t> tokens, Tensor logits, Tensor taken) {
  run.threads().run(logits.dim(0), [&](std::int64_t i) {
    T* from = logits.data<T>() + i * logits.dim(1);
    T* to = taken.data<T>() + i * taken.dim(1);
    for (const std::int64_t token : tokens) {
      *to++ = from[token];
      from[token] = 0;
    }
  });
}

template <typename T>
void put_columns(Run& run, std::span<const std::int64_t> tokens, Tensor given, Tensor logits) {
  run.threads().run(logits.dim(0), [&](std::int64_t i) {
    const T* from = given.data<T>() + i * given.dim(1);
    T* to = logits.data<T>() + i * logits.dim(1);
    for (const std::int64_t token : tokens) to[token] = *from++;
  });
}

}  // namespace atl::ops::ref
