#pragma once

// Causal attention with tensor cores, for bf16 heads of at most 128 elements: tiles of queries
// against tiles of keys, softmax along the keys (Dao et al. 2022, 2023). A gradient has two
// kernels, one that goes along the keys of each query and one along the queries of each key, so
// that no sum is shared and all have one order. Heads of fewer elements than kDim are padded with
// zeroes.
//
// A block has four warps, each with 16 rows of its tile. What a loop goes along comes into two
// buffers by turns, so that one barrier a tile is enough: what is copied into now was last read
// before the barrier of this turn.

#include "atoll/ops/cuda/attention_tiles.cuh"

namespace atl::ops::cuda {

/// Which tile of rows, of which head of which sequence, a block has. The tiles of a head lie side
/// by side, so that what they read stays in the cache; the last comes first if it has most to do.
struct TilePlace {
  int first;
  int head;
  std::int64_t b;

  ATOLL_DEVICE static TilePlace of_block(int length, int heads, bool is_last_first) {
    const int tiles = (length + kTileRows - 1) / kTileRows;
    const int tile = block_x() % tiles, rest = block_x() / tiles;
    return {(is_last_first ? tiles - 1 - tile : tile) * kTileRows, rest % heads, rest / heads};
  }
};

/// What a lane's two queries see, and whether a tile of keys needs to ask.
struct QueryMask {
  int from[2], last[2];  // the first and the last key of each
  int tile_from;         // the first that all queries of the tile see
  int tile_last;         // the last that all do

  template <typename Setup>
  ATOLL_DEVICE static QueryMask of(const Setup& setup, std::int64_t b, int first, int row) {
    QueryMask mask;
    const int end = setup.length;
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = first + row + lane() / 4 + 8 * i;
      mask.from[i] = t < end ? setup.first_key(b, t) : 0;
      mask.last[i] = setup.own_key(t);
    }
    const int last = first + kTileRows < end ? first + kTileRows : end;
    mask.tile_from = setup.first_key(b, last - 1);
    mask.tile_last = setup.own_key(first);
    return mask;
  }
  /// Hides of the scores of keys [key, key + kKeys) those that a query does not see.
  template <int kKeys>
  ATOLL_DEVICE void hide(float (&s)[kKeys / 8][4], int key) const {
    if (key >= tile_from && key + kKeys - 1 <= tile_last) return;
    ATOLL_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      ATOLL_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int at = key + 8 * j + lane() % 4 * 2 + e % 2;
        if (at < from[e / 2] || at > last[e / 2]) s[j][e] = kHidden;
      }
    }
  }
};

/// A row's sum over the four lanes that share it.
ATOLL_DEVICE float row_sum(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}
ATOLL_DEVICE float row_max(float value) {
  for (int mask = 1; mask <= 2; mask *= 2) {
    const float other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

/// out and lse of a tile of queries.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaForward {
  static constexpr const char* kName = "attention_mma_forward";
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kKeys = 64;
  using Rows = Tile<kTileRows, kDim>;
  using Keys = Tile<kKeys, kDim>;
  static constexpr int shared_bytes() { return Rows::kBytes + 4 * Keys::kBytes; }
  HeadRows<const Bf16> queries, keys, values;
  HeadRows<AttentionResult<Bf16, Setup>> out;
  Global<float> lse;  // (B, heads, T), or empty
  Setup setup;

  ATOLL_DEVICE Keys key_tile(int stage) const { return {Rows::kBytes + stage * Keys::kBytes}; }
  ATOLL_DEVICE Keys value_tile(int stage) const {
    return {Rows::kBytes + (2 + stage) * Keys::kBytes};
  }
  ATOLL_DEVICE void copy(int stage, std::int64_t b, int kv_head, int key, int end) const {
    key_tile(stage).copy(keys, b, kv_head, key, end);
    value_tile(stage).copy(values, b, kv_head, key, end);
    commit_copies();
  }

  ATOLL_DEVICE void operator()() const {
    const auto [first, head, b] = TilePlace::of_block(setup.length, setup.heads, true);
    const int kv_head = head / setup.group(), row = warp() * kWarpRows;
    const Rows q = {0};
    const int last = first + kTileRows < setup.length ? first + kTileRows : setup.length;
    const int begin = setup.first_key(b, first) / kKeys * kKeys;
    const int end = setup.own_key(last - 1) + 1;
    q.copy(queries, b, head, first, setup.length);
    copy(0, b, kv_head, begin, end);
    const QueryMask mask = QueryMask::of(setup, b, first, row);
    const float to_log2 = setup.scale * kLog2E;
    float sum[kDim / 8][4] = {};
    float max[2] = {kHidden, kHidden}, total[2] = {0, 0};
    int stage = 0;
    for (int key = begin; key < end; key += kKeys, stage ^= 1) {
      wait_copies<0>();
      sync_block();
      if (key + kKeys < end) copy(stage ^ 1, b, kv_head, key + kKeys, end);
      float p[kKeys / 8][4] = {};
      multiply(p, q, row, key_tile(stage));
      mask.template hide<kKeys>(p, key);
      ATOLL_UNROLL
      for (int i = 0; i < 2; ++i) exponentiate(p, sum, i, to_log2, max[i], total[i]);
      accumulate(sum, p, value_tile(stage));
    }
    if constexpr (Setup::kIsBlock) wait_copies<0>();  // where no query sees a key
    const float sums[2] = {row_sum(total[0]), row_sum(total[1])};
    if constexpr (Setup::kIsBlock) {
      return join(b, head, first, row, sum, max, sums);
    } else {
      ATOLL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int t = first + row + lane() / 4 + 8 * i;
        if (lane() % 4 == 0 && t < setup.length && lse.size > 0) {
          lse.store(setup.lse_at(b, head, t), fmaf(max[i], setup.scale, log_f32(sums[i])));
        }
      }
      store_rows(q, row, sum, 1.0F / sums[0], 1.0F / sums[1], out, b, head, first, setup.length);
    }
  }

 private:
  // What a block's keys have given joins what the rows have.
  ATOLL_DEVICE void join(std::int64_t b, int head, int first, int row,
                         const float (&sum)[kDim / 8][4], const float (&max)[2],
                         const float (&sums)[2]) const {
    float before[2], now[2];
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = first + row + lane() / 4 + 8 * i;
      const bool is_there = t < setup.length;
      const std::int64_t at = setup.lse_at(b, head, t);
      // Of the four lanes of a row one reads what it then writes.
      const bool reads = setup.merges && is_there && lane() % 4 == 0;
      const float old = shuffle(reads ? lse.load(at) : 0.0F, lane() / 4 * 4);
      const auto merge = AttentionMerge::of(setup.merges, old, max[i] * setup.scale, sums[i]);
      before[i] = merge.before;
      now[i] = merge.now;
      if (lane() % 4 == 0 && is_there) lse.store(at, merge.lse);
    }
    join_rows<kDim>(row, sum, before, now, out, b, head, first, setup.length);
  }
  // Row i of the lane's two: scores become probabilities over the largest score so far, and the
  // sums so far are scaled to it.
  ATOLL_DEVICE static void exponentiate(float (&p)[kKeys / 8][4], float (&sum)[kDim / 8][4], int i,
                                        float to_log2, float& max, float& total) {
    float top = max;
    ATOLL_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      const float larger = p[j][2 * i] > p[j][2 * i + 1] ? p[j][2 * i] : p[j][2 * i + 1];
      top = larger > top ? larger : top;
    }
    top = row_max(top);
    // With nothing seen yet, hidden scores must come to nothing too.
    const float shift = top > 0.5F * kHidden ? top * to_log2 : 0.0F;
    const float before = exp2_approximate(fmaf(max, to_log2, -shift));
    max = top;
    total *= before;
    ATOLL_UNROLL
    for (int j = 0; j < kKeys / 8; ++j) {
      ATOLL_UNROLL
      for (int e = 2 * i; e < 2 * i + 2; ++e) {
        p[j][e] = exp2_approximate(fmaf(p[j][e], to_log2, -shift));
        total += p[j][e];
      }
    }
    ATOLL_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      sum[j][2 * i] *= before;
      sum[j][2 * i + 1] *= before;
    }
  }
};

/// dq of a tile of queries, and delta = dout out of each: ds = p (dout v - delta), dq = scale ds k.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaQueries {
  static constexpr const char* kName = "attention_mma_queries";
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kKeys = kDim > 64 ? 32 : 64;
  using Rows = Tile<kTileRows, kDim>;
  using Keys = Tile<kKeys, kDim>;
  static constexpr int shared_bytes() { return 2 * Rows::kBytes + 4 * Keys::kBytes; }
  HeadRows<const Bf16> queries, keys, values, out, dout;
  Global<const float> lse;
  HeadRows<AttentionResult<Bf16, Setup>> dqueries;
  Global<float> delta;  // (B, heads, T)
  Setup setup;

  ATOLL_DEVICE Keys key_tile(int stage) const { return {2 * Rows::kBytes + stage * Keys::kBytes}; }
  ATOLL_DEVICE Keys value_tile(int stage) const {
    return {2 * Rows::kBytes + (2 + stage) * Keys::kBytes};
  }
  ATOLL_DEVICE void copy(int stage, std::int64_t b, int kv_head, int key, int end) const {
    key_tile(stage).copy(keys, b, kv_head, key, end);
    value_tile(stage).copy(values, b, kv_head, key, end);
    commit_copies();
  }

  ATOLL_DEVICE void operator()() const {
    const auto [first, head, b] = TilePlace::of_block(setup.length, setup.heads, true);
    const int kv_head = head / setup.group(), row = warp() * kWarpRows;
    const Rows q = {0}, grad = {Rows::kBytes};
    const int last = first + kTileRows < setup.length ? first + kTileRows : setup.length;
    const int begin = setup.first_key(b, first) / kKeys * kKeys;
    const int end = setup.own_key(last - 1) + 1;
    q.copy(queries, b, head, first, setup.length);
    grad.copy(dout, b, head, first, setup.length);
    copy(0, b, kv_head, begin, end);
    float deltas[2], shifts[2];
    find_deltas(b, head, first, row, deltas);
    const QueryMask mask = QueryMask::of(setup, b, first, row);
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = first + row + lane() / 4 + 8 * i;
      shifts[i] = t < setup.length ? lse.load(setup.lse_at(b, head, t)) * kLog2E : 0.0F;
      if (lane() % 4 == 0 && t < setup.length) delta.store(setup.delta_at(b, head, t), deltas[i]);
    }
    const float to_log2 = setup.scale * kLog2E;
    float sum[kDim / 8][4] = {};
    int stage = 0;
    for (int key = begin; key < end; key += kKeys, stage ^= 1) {
      wait_copies<0>();
      sync_block();
      if (key + kKeys < end) copy(stage ^ 1, b, kv_head, key + kKeys, end);
      float s[kKeys / 8][4] = {}, dp[kKeys / 8][4] = {};
      multiply(s, q, row, key_tile(stage));
      mask.template hide<kKeys>(s, key);
      multiply(dp, grad, row, value_tile(stage));
      ATOLL_UNROLL
      for (int j = 0; j < kKeys / 8; ++j) {
        ATOLL_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float p = exp2_approximate(fmaf(s[j][e], to_log2, -shifts[e / 2]));
          s[j][e] = p * (dp[j][e] - deltas[e / 2]);
        }
      }
      accumulate(sum, s, key_tile(stage));
    }
    if constexpr (Setup::kIsBlock) {
      wait_copies<0>();  // where no query sees a key
      add_rows(row, sum, setup.scale, dqueries, b, head, first, setup.length);
    } else {
      store_rows(q, row, sum, setup.scale, setup.scale, dqueries, b, head, first, setup.length);
    }
  }

 private:
  // dout out of the lane's two rows. kDim / 8 lanes take a row together.
  ATOLL_DEVICE void find_deltas(std::int64_t b, int head, int first, int row,
                                float (&deltas)[2]) const {
    constexpr int kLanes = kDim / kChunk, kRows = kWarp / kLanes;
    ATOLL_UNROLL
    for (int i = 0; i < kWarpRows / kRows; ++i) {
      const int t = first + row + i * kRows + lane() / kLanes;
      const int d = lane() % kLanes * kChunk;
      float sum = 0;
      if (t < setup.length && d < setup.head_dim) {
        const auto o = out.rows.template load<kChunk>(out.at(b, t, head) + d);
        const auto g = dout.rows.template load<kChunk>(dout.at(b, t, head) + d);
        ATOLL_UNROLL
        for (int c = 0; c < kChunk; ++c) sum = fmaf(widened(o[c]), widened(g[c]), sum);
      }
      ATOLL_UNROLL
      for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      const float mine = shuffle(sum, lane() / 4 % kRows * kLanes);
      if (lane() / 4 / kRows == i) deltas[0] = mine;
      if ((lane() / 4 + 8) / kRows == i) deltas[1] = mine;
    }
  }
};

/// dk and dv of a tile of keys: sums over the query heads of its group, and over the queries that
/// see it. Products stand on their side: rows are keys, columns are queries.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaKeys {
  static constexpr const char* kName = "attention_mma_keys";
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kQueries = kDim > 64 ? 32 : 64;
  using Rows = Tile<kTileRows, kDim>;
  using Queries = Tile<kQueries, kDim>;
  static constexpr int kNumbersAt = 2 * Rows::kBytes + 4 * Queries::kBytes;
  static constexpr int shared_bytes() { return kNumbersAt + 4 * kQueries * 4; }
  HeadRows<const Bf16> queries, keys, values, dout;
  Global<const float> lse;
  Global<const float> delta;  // (B, heads, T)
  HeadRows<AttentionResult<Bf16, Setup>> dkeys, dvalues;
  Setup setup;

  ATOLL_DEVICE Queries query_tile(int stage) const {
    return {2 * Rows::kBytes + stage * Queries::kBytes};
  }
  ATOLL_DEVICE Queries grad_tile(int stage) const {
    return {2 * Rows::kBytes + (2 + stage) * Queries::kBytes};
  }
  // kQueries of lse, then as many of delta.
  ATOLL_DEVICE Shared<float> numbers(int stage) const {
    return shared_memory<float>(kNumbersAt + stage * 2 * kQueries * 4, 2 * kQueries);
  }
  ATOLL_DEVICE void copy(int stage, std::int64_t b, int head, int first) const {
    query_tile(stage).copy(queries, b, head, first, setup.length);
    grad_tile(stage).copy(dout, b, head, first, setup.length);
    if (thread() < 2 * kQueries) {
      const int t = first + thread() % kQueries;
      const bool is_there = t < setup.length;
      const bool is_lse = thread() < kQueries;
      const std::int64_t at = is_lse ? setup.lse_at(b, head, t) : setup.delta_at(b, head, t);
      copy_async<1>(numbers(stage), thread(), is_lse ? lse : delta, is_there ? at : 0, is_there);
    }
    commit_copies();
  }

  ATOLL_DEVICE void operator()() const {
    const auto [first, kv_head, b] = TilePlace::of_block(setup.num_keys(), setup.kv_heads, false);
    const int row = warp() * kWarpRows;
    const Rows k = {0}, v = {Rows::kBytes};
    const int begin = setup.first_query(first), end = end_of_queries(b, first, begin);
    k.copy(keys, b, kv_head, first, setup.num_keys());
    v.copy(values, b, kv_head, first, setup.num_keys());
    int head = kv_head * setup.group();
    copy(0, b, head, begin);
    const int last_head = head + setup.group();
    const float to_log2 = setup.scale * kLog2E;
    float dk[kDim / 8][4] = {}, dv[kDim / 8][4] = {};
    int stage = 0;
    for (int query = begin; head < last_head; stage ^= 1) {
      wait_copies<0>();
      sync_block();
      const bool is_last = query + kQueries >= end;
      const int next = is_last ? begin : query + kQueries;
      const int next_head = is_last ? head + 1 : head;
      if (next_head < last_head) copy(stage ^ 1, b, next_head, next);
      float p[kQueries / 8][4] = {}, ds[kQueries / 8][4] = {};
      multiply(p, k, row, query_tile(stage));
      hide(p, b, first, query);
      multiply(ds, v, row, grad_tile(stage));
      ATOLL_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const auto lses = numbers(stage).template load<2>(8 * j + lane() % 4 * 2);
        const auto deltas = numbers(stage).template load<2>(kQueries + 8 * j + lane() % 4 * 2);
        ATOLL_UNROLL
        for (int e = 0; e < 4; ++e) {
          p[j][e] = exp2_approximate(fmaf(p[j][e], to_log2, -lses[e % 2] * kLog2E));
          ds[j][e] = p[j][e] * (ds[j][e] - deltas[e % 2]);
        }
      }
      accumulate(dv, p, grad_tile(stage));
      accumulate(dk, ds, query_tile(stage));
      query = next;
      head = next_head;
    }
    if constexpr (Setup::kIsBlock) {
      add_rows(row, dk, setup.scale, dkeys, b, kv_head, first, setup.num_keys());
      add_rows(row, dv, 1.0F, dvalues, b, kv_head, first, setup.num_keys());
    } else {
      store_rows(k, row, dk, setup.scale, setup.scale, dkeys, b, kv_head, first, setup.length);
      store_rows(v, row, dv, 1.0F, 1.0F, dvalues, b, kv_head, first, setup.length);
    }
  }

 private:
  // Behind the last query from `begin` on that sees a key of the tile, found by halving: see
  // first_key.
  ATOLL_DEVICE int end_of_queries(std::int64_t b, int first, int begin) const {
    int sees = begin, end = setup.length;
    while (sees + 1 < end) {
      const int middle = (sees + end) / 2;
      if (setup.first_key(b, middle) < first + kTileRows)
        sees = middle;
      else
        end = middle;
    }
    return end;
  }
  // Hides of the scores of keys [first, ...) and queries [query, ...) those that do not meet.
  ATOLL_DEVICE void hide(float (&s)[kQueries / 8][4], std::int64_t b, int first, int query) const {
    const int length = setup.length;
    const int last = query + kQueries < length ? query + kQueries : length;
    if (setup.own_key(query) >= first + kTileRows - 1 && setup.first_key(b, last - 1) <= first) {
      return;
    }
    const int key = first + warp() * kWarpRows + lane() / 4;
    ATOLL_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      ATOLL_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int t = query + 8 * j + lane() % 4 * 2 + e;
        const int from = t < length ? setup.first_key(b, t) : 0;
        const int own = setup.own_key(t);
        if (key < from || key > own) s[j][e] = kHidden;
        if (key + 8 < from || key + 8 > own) s[j][e + 2] = kHidden;
      }
    }
  }
};

using AttentionMmaKernels = KernelList<
    AttentionMmaForward<64>, AttentionMmaForward<128>, AttentionMmaQueries<64>,
    AttentionMmaQueries<128>, AttentionMmaKeys<64>, AttentionMmaKeys<128>,
    AttentionMmaForward<64, AttentionBlockSetup>, AttentionMmaForward<128, AttentionBlockSetup>,
    AttentionMmaQueries<64, AttentionBlockSetup>, AttentionMmaQueries<128, AttentionBlockSetup>,
    AttentionMmaKeys<64, AttentionBlockSetup>, AttentionMmaKeys<128, AttentionBlockSetup>>;

}  // namespace atl::ops::cuda
