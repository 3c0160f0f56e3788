#pragma once

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"

namespace atl::ops::cuda {

/// y[row] (+)= table[index], with index = tokens[row], or, where there are none, the row's place in
/// its sequence. A thread for V neighbouring columns of a row.
template <typename T, typename Y, bool kAdds, int V>
struct EmbeddingForward {
  static constexpr const char* kName = kAdds ? "position_embedding_forward" : "embedding_forward";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> tokens;  // (rows), or empty
  Global<const T> table;              // (V, width)
  Global<Y> y;                        // (rows, width)
  std::int64_t width;
  std::int64_t rows_per_sequence;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t at = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (at >= y.size) return;
    const std::int64_t row = at / width;
    const std::int64_t index = tokens.size == 0 ? row % rows_per_sequence : tokens.load(row);
    const auto from = Held<T, V>::of(table.template load<V>(index * width + at % width));
    float values[V];
    ATOLL_UNROLL
    for (int i = 0; i < V; ++i) values[i] = from[i];
    if constexpr (kAdds) {
      const auto before = Held<Y, V>::of(y.template load<V>(at));
      ATOLL_UNROLL
      for (int i = 0; i < V; ++i) values[i] = before[i] + values[i];
    }
    y.template store<V>(at, packed<Y>(values));
  }
};

/// order = the rows by their token, rows of one token in their order: five bits of the token at a
/// time, from the lowest (a radix sort; Knuth, The Art of Computer Programming, volume 3, section
/// 5.2.5). One block: its warps have parts of the rows, and lane d of a warp knows how many rows of
/// the part have digit d. No atomics.
struct SortTokens {
  static constexpr const char* kName = "sort_tokens";
  static constexpr int kMaxThreads = 1024;
  static constexpr int kBits = 5;
  Global<const std::int32_t> tokens;  // (rows)
  Global<std::int32_t> order;         // (rows)
  Global<std::int32_t> other;         // (rows): what order was before a pass
  int passes;

  /// Rows of each digit in each part, then where these begin.
  static constexpr int shared_bytes(int threads) { return threads * 4; }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t rows = tokens.size;
    const int warps = num_threads() / kWarp;
    const std::int64_t groups = (rows + kWarp - 1) / kWarp;
    const std::int64_t each = (groups + warps - 1) / warps * kWarp;
    const std::int64_t begin = warp() * each;
    const std::int64_t end = begin + each < rows ? begin + each : rows;
    const Shared<std::int32_t> counts = shared_memory<std::int32_t>(0, num_threads());
    for (int pass = 0; pass < passes; ++pass) {
      // The last pass writes order.
      const bool to_order = (passes - pass) % 2 == 1;
      const Global<std::int32_t> from = to_order ? other : order;
      const Global<std::int32_t> to = to_order ? order : other;
      std::int32_t count = 0;
      for (std::int64_t row = begin; row < end; row += kWarp) {
        const Digits digits = look(from, row + lane(), end, pass);
        count += ones(digits.lanes_with(lane()));
      }
      counts.store(thread(), count);
      sync_block();
      if (warp() == 0) add_up(counts, warps);
      sync_block();
      std::int32_t place = counts.load(thread());  // of the next row with digit lane()
      for (std::int64_t row = begin; row < end; row += kWarp) {
        const Digits digits = look(from, row + lane(), end, pass);
        const std::int32_t first = shuffle(place, digits.own);
        if (row + lane() < end) {
          const std::uint32_t before = (1U << lane()) - 1;
          to.store(first + ones(digits.lanes_with(digits.own) & before), digits.row);
        }
        place += ones(digits.lanes_with(lane()));
      }
      sync_block();
    }
  }

 private:
  /// Of a warp's rows: a bit of each lane's digit in each word.
  struct Digits {
    std::uint32_t bits[kBits];
    std::uint32_t there;  // lanes that have a row
    int own;
    std::int32_t row;

    ATOLL_DEVICE std::uint32_t lanes_with(int digit) const {
      std::uint32_t lanes = there;
      ATOLL_UNROLL
      for (int bit = 0; bit < kBits; ++bit) {
        lanes &= (digit >> bit & 1) != 0 ? bits[bit] : ~bits[bit];
      }
      return lanes;
    }
  };

  /// How many bits are set (Warren, Hacker's Delight, section 5-1).
  ATOLL_DEVICE static std::int32_t ones(std::uint32_t word) {
    word -= word >> 1 & 0x55555555U;
    word = (word & 0x33333333U) + (word >> 2 & 0x33333333U);
    word = (word + (word >> 4)) & 0x0f0f0f0fU;
    return static_cast<std::int32_t>(word * 0x01010101U >> 24);
  }

  /// The digit of entry `i` of `from`, where it is before `end`.
  ATOLL_DEVICE Digits look(const Global<std::int32_t>& from, std::int64_t i, std::int64_t end,
                           int pass) const {
    Digits digits;
    const bool is_there = i < end;
    digits.row = !is_there ? 0 : pass == 0 ? static_cast<std::int32_t>(i) : from.load(i);
    digits.own = is_there ? tokens.load(digits.row) >> (pass * kBits) & (kWarp - 1) : 0;
    digits.there = ballot(is_there);
    ATOLL_UNROLL
    for (int bit = 0; bit < kBits; ++bit) digits.bits[bit] = ballot((digits.own >> bit & 1) != 0);
    return digits;
  }

  /// counts[part][digit] become the rows that lie before: of smaller digits, and of the digit in
  /// earlier parts. For one warp.
  ATOLL_DEVICE static void add_up(const Shared<std::int32_t>& counts, int warps) {
    std::int32_t own = 0;
    for (int part = 0; part < warps; ++part) own += counts.load(part * kWarp + lane());
    std::int32_t sum = own;  // of the digits up to this lane's
    for (int d = 1; d < kWarp; d *= 2) {
      const int below = (lane() + kWarp - d) % kWarp;
      const std::int32_t other = shuffle(sum, below);
      if (lane() >= d) sum += other;
    }
    std::int32_t before = sum - own;
    for (int part = 0; part < warps; ++part) {
      const std::int32_t count = counts.load(part * kWarp + lane());
      counts.store(part * kWarp + lane(), before);
      before += count;
    }
  }
};

/// dtable[token] += dy of its rows, in the order of rows. A block for each entry of `order` and for
/// kMaxThreads V columns: that of a token's first row adds all of them, 32 at a time, the others
/// end. Tokens that are not of the table, as of another rank's part, are left out.
template <typename T, int V>
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  static constexpr int kMaxThreads = 128;
  static constexpr int kAtOnce = 8;
  Global<const std::int32_t> tokens;  // (rows)
  Global<const std::int32_t> order;   // (rows), of SortTokens
  Global<const T> dy;                 // (rows, width)
  Global<float> dtable;               // (V, width)
  std::int64_t width;
  std::int64_t first;  // the token of row 0 of dtable

  ATOLL_DEVICE std::int32_t token_at(std::int64_t i) const { return tokens.load(order.load(i)); }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t start = block_x();
    const std::int32_t token = token_at(start);
    const std::int64_t own = token - first;
    // For the whole block alike.
    if (own < 0 || own * width >= dtable.size) return;
    if (start > 0 && token_at(start - 1) == token) return;
    const std::int64_t column = (std::int64_t{block_y()} * num_threads() + thread()) * V;
    const bool has_columns = column < width;
    Pack<float, V> sum = {};
    if (has_columns) sum = dtable.template load<V>(own * width + column);
    for (std::int64_t begin = start;; begin += kWarp) {
      const std::int64_t i = begin + lane();
      const std::int32_t row = i < order.size ? order.load(i) : -1;
      const bool is_own = row >= 0 && tokens.load(row) == token;
      const std::uint32_t found = ballot(is_own);  // the lanes up to some lane
      ATOLL_NO_UNROLL
      for (int from = 0; from < kWarp && (found >> from) != 0; from += kAtOnce) {
        // Several rows are under way before the first is added.
        Pack<T, V> packs[kAtOnce] = {};
        ATOLL_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          const std::int64_t at = shuffle(row, from + k);
          if ((found >> (from + k) & 1) != 0 && has_columns) {
            packs[k] = dy.template load<V>(at * width + column);
          }
        }
        ATOLL_UNROLL
        for (int k = 0; k < kAtOnce; ++k) {
          if ((found >> (from + k) & 1) == 0) continue;
          for (int v = 0; v < V; ++v) sum[v] += widened(packs[k][v]);
        }
      }
      if (found != ~0U) break;
    }
    if (has_columns) dtable.template store<V>(own * width + column, sum);
  }
};

/// dtable[t] += dy[b, t], in the order of b: places in sequences are positions.
template <typename T, int V>
struct PlaceEmbeddingBackward {
  static constexpr const char* kName = "place_embedding_backward";
  static constexpr int kMaxThreads = 128;
  Global<const T> dy;    // (B, steps, width)
  Global<float> dtable;  // (at least steps, width)
  std::int64_t size;     // steps * width

  ATOLL_DEVICE void operator()() const {
    const std::int64_t at = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (at >= size) return;
    auto sum = dtable.template load<V>(at);
    for (std::int64_t from = at; from < dy.size; from += size) {
      const auto pack = dy.template load<V>(from);
      for (int v = 0; v < V; ++v) sum[v] += widened(pack[v]);
    }
    dtable.template store<V>(at, sum);
  }
};

template <typename T, int V>
using EmbeddingBackwardKernels = KernelList<EmbeddingBackward<T, V>, PlaceEmbeddingBackward<T, V>>;
template <int kFew, int kMany>
using EmbeddingForwardKernels = KernelList<
    EmbeddingForward<float, float, false, kFew>, EmbeddingForward<Bf16, Bf16, false, kMany>,
    EmbeddingForward<Bf16, float, false, kFew>, EmbeddingForward<float, float, true, kFew>,
    EmbeddingForward<Bf16, Bf16, true, kMany>>;
using EmbeddingKernels =
    Joined<EmbeddingForwardKernels<1, 1>, EmbeddingForwardKernels<4, 8>, KernelList<SortTokens>,
           EmbeddingBackwardKernels<float, 1>, EmbeddingBackwardKernels<float, 4>,
           EmbeddingBackwardKernels<Bf16, 1>, EmbeddingBackwardKernels<Bf16, 4>>;

}  // namespace atl::ops::cuda
