#pragma once

// The gradient of attention with tensor cores: see attention_mma.cuh. Both kernels go through a
// tile kStep rows at a time: the scores of more do not fit in registers beside the sums.

#include "atoll/ops/attention/mma_rows.cuh"

namespace atl::ops::cuda {

/// dq of a tile of queries, and delta = dout out of each: ds = p (dout v - delta), dq = scale ds k.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaQueries {
  static constexpr const char* kName = "attention_mma_queries";
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kParts = 2;
  static constexpr int kRows = kAttentionWarps * kPart * kParts;
  static constexpr int kKeys = kDim > 64 ? 32 : 64;
  static constexpr int kStep = 32;
  using Rows = Tile<kRows, kDim>;
  using Keys = Tile<kKeys, kDim>;
  using Left = LeftRows<kParts, kRows, kDim, (kDim <= 64)>;
  static constexpr int kNumbersAt = 2 * Rows::kBytes + 4 * Keys::kBytes;
  static constexpr int kMaskAt = kNumbersAt + 2 * kRows * 4;
  using Mask = QueryMask<kParts, Setup, kMaskAt>;
  static constexpr int shared_bytes() { return kMaskAt + Mask::kBytes; }
  HeadRows<const Bf16> queries, keys, values, out, dout;
  Global<const float> lse;
  HeadRows<AttentionResult<Bf16, Setup>> dqueries;
  Global<float> delta;  // (B, heads, T)
  Setup setup;

  ATOLL_DEVICE Keys key_tile(int stage) const { return {2 * Rows::kBytes + stage * Keys::kBytes}; }
  ATOLL_DEVICE Keys value_tile(int stage) const {
    return {2 * Rows::kBytes + (2 + stage) * Keys::kBytes};
  }
  // Of each row lse, times log2(e), and delta.
  ATOLL_DEVICE static Shared<float> numbers() {
    return shared_memory<float>(kNumbersAt, 2 * kRows);
  }
  ATOLL_DEVICE void copy(int stage, std::int64_t from_keys, std::int64_t from_values, int key,
                         int end) const {
    key_tile(stage).copy(keys, from_keys, key, end);
    value_tile(stage).copy(values, from_values, key, end);
    commit_copies();
  }

  ATOLL_DEVICE void operator()() const {
    const auto [first, head, b] = TilePlace::of_block(kRows, setup.length, setup.heads, true);
    const int kv_head = head / setup.group(), row = warp_row<kParts>();
    Left q = {{0}, row, {}}, grad = {{Rows::kBytes}, row, {}};
    const int last = first + kRows < setup.length ? first + kRows : setup.length;
    const int begin = setup.first_key(b, first) / kKeys * kKeys;
    const int end = setup.own_key(last - 1) + 1;
    q.tile.template copy_own<kPart * kParts>(queries, b, head, first, setup.length, row);
    grad.tile.template copy_own<kPart * kParts>(dout, b, head, first, setup.length, row);
    commit_copies();
    const std::int64_t from_keys = Keys::source(keys, b, kv_head);
    const std::int64_t from_values = Keys::source(values, b, kv_head);
    copy(begin / kKeys % 2, from_keys, from_values, begin, end);
    find_numbers(b, head, first, row);
    const Mask mask = {setup};
    mask.keep(b, head, first + row);
    const float to_log2 = setup.scale * kLog2E;
    float sum[kParts][kDim / 8][4] = {};
    wait_copies<1>();
    sync_warp();
    q.load();
    grad.load();
    for (int key = begin; key < end; key += kKeys) {
      const int stage = key / kKeys % 2;
      wait_copies<0>();
      sync_block();
      if (key + kKeys < end) copy(stage ^ 1, from_keys, from_values, key + kKeys, end);
      ATOLL_NO_UNROLL
      for (int n = 0; n < kKeys; n += kStep) {
        if (!mask.sees(key + n, kStep)) continue;
        float s[kParts][kStep / 8][4] = {}, dp[kParts][kStep / 8][4] = {};
        multiply(s, q, key_tile(stage), n);
        multiply(dp, grad, value_tile(stage), n);
        mask.hide(s, key + n);
        ATOLL_UNROLL
        for (int r = 0; r < 2 * kParts; ++r) {
          const auto own = numbers().template load<2>(2 * (row + 8 * r + lane_id() / 4));
          ATOLL_UNROLL
          for (int j = 0; j < kStep / 8; ++j) {
            ATOLL_UNROLL
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; ++e) {
              float& score = s[r / 2][j][e];
              const float p = exp2_approximate(fmaf(score, to_log2, -own[0]));
              score = p * (dp[r / 2][j][e] - own[1]);
            }
          }
        }
        accumulate(sum, s, key_tile(stage), n);
      }
    }
    if constexpr (Setup::kIsBlock) wait_copies<0>();  // where no query sees a key
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      const int t = mask.kept(Mask::kFirst) + kPart * m;
      const int at_b = mask.kept(Mask::kBatch), at_head = mask.kept(Mask::kHead);
      if constexpr (Setup::kIsBlock)
        add_rows(sum[m], setup.scale, dqueries, at_b, at_head, t, setup.length);
      else
        store_rows(Rows{0}, t % kRows, sum[m], setup.scale, setup.scale, dqueries, at_b, at_head, t,
                   setup.length);
    }
  }

 private:
  // delta = dout out, and lse, of a warp's rows. kDim / 8 lanes take a row together.
  ATOLL_DEVICE void find_numbers(int b, int head, int first, int row) const {
    constexpr int kLanes = kDim / kChunk, kAtOnce = kWarp / kLanes;
    const int d = lane_id() % kLanes * kChunk;
    ATOLL_UNROLL
    for (int i = 0; i < kPart * kParts; i += kAtOnce) {
      const int mine = row + i + lane_id() / kLanes, t = first + mine;
      const bool is_there = t < setup.length;
      float sum = 0;
      if (is_there && d < setup.head_dim) {
        const auto o = out.rows.template load<kChunk>(out.at(b, t, head) + d);
        const auto g = dout.rows.template load<kChunk>(dout.at(b, t, head) + d);
        ATOLL_UNROLL
        for (int c = 0; c < kChunk; ++c) sum = fmaf(widened(o[c]), widened(g[c]), sum);
      }
      ATOLL_UNROLL
      for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (d != 0) continue;
      if (is_there) delta.store(setup.delta_at(b, head, t), sum);
      const float shift = is_there ? lse.load(setup.lse_at(b, head, t)) * kLog2E : 0.0F;
      numbers().template store<2>(2 * mine, {shift, sum});
    }
  }
};

/// dk and dv of a tile of keys: sums over the query heads of its group, and over the queries that
/// see it. Products stand on their side: rows are keys, columns are queries.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaKeys {
  static constexpr const char* kName = "attention_mma_keys";
  static constexpr int kMaxThreads = kAttentionThreads;
  static_assert(kDim <= 64, "of 128: attention_mma_pairs.cuh");
  static constexpr int kParts = 2;
  static constexpr int kRows = kAttentionWarps * kPart * kParts;
  static constexpr int kQueries = 64;
  static constexpr int kStep = 16;
  using Rows = Tile<kRows, kDim>;
  using Queries = Tile<kQueries, kDim>;
  using Scores = float[kParts][kStep / 8][4];
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
  ATOLL_DEVICE void copy(int stage, std::int64_t from_queries, std::int64_t from_grads, int b,
                         int head, int first) const {
    query_tile(stage).copy(queries, from_queries, first, setup.length);
    grad_tile(stage).copy(dout, from_grads, first, setup.length);
    if (thread_id() < 2 * kQueries) {
      const int t = first + thread_id() % kQueries;
      const bool is_lse = thread_id() < kQueries;
      const std::int64_t at = is_lse ? setup.lse_at(b, head, t) : setup.delta_at(b, head, t);
      copy_async<1>(numbers(stage), thread_id(), is_lse ? lse : delta, at, t < setup.length);
    }
    commit_copies();
  }

  ATOLL_DEVICE void operator()() const {
    const TilePlace place = TilePlace::of_block(kRows, setup.num_keys(), setup.kv_heads, false);
    const int first = place.first, b = place.b;
    const int row = warp_row<kParts>();
    LeftRows<kParts, kRows, kDim, true> k = {{0}, row, {}};
    LeftRows<kParts, kRows, kDim, false> v = {{Rows::kBytes}, row, {}};
    k.tile.template copy_own<kPart * kParts>(keys, b, place.head, first, setup.num_keys(), row);
    v.tile.template copy_own<kPart * kParts>(values, b, place.head, first, setup.num_keys(), row);
    commit_copies();
    const int begin = setup.first_query(first);
    const int end = KeyMask<kParts, Setup>::end_of_queries(setup, b, first + kRows - 1, begin);
    int head = place.head * setup.group();
    std::int64_t from_queries = Queries::source(queries, b, head);
    std::int64_t from_grads = Queries::source(dout, b, head);
    copy(0, from_queries, from_grads, b, head, begin);
    const int last_head = head + setup.group();
    const KeyMask<kParts, Setup> mask(setup, b, first + row);
    const float to_log2 = setup.scale * kLog2E;
    float dk[kParts][kDim / 8][4] = {}, dv[kParts][kDim / 8][4] = {};
    wait_copies<1>();
    sync_warp();
    k.load();
    int stage = 0;
    for (int query = begin; head < last_head; stage ^= 1) {
      wait_copies<0>();
      sync_block();
      const bool is_last = query + kQueries >= end;
      const int next = is_last ? begin : query + kQueries;
      const int next_head = is_last ? head + 1 : head;
      if (is_last) {
        from_queries += queries.head_dim;
        from_grads += dout.head_dim;
      }
      if (next_head < last_head) copy(stage ^ 1, from_queries, from_grads, b, next_head, next);
      ATOLL_NO_UNROLL
      for (int n = 0; n < kQueries; n += kStep) {
        if (!mask.sees(query + n, kStep)) continue;
        Scores p = {}, ds = {};
        multiply(p, k, query_tile(stage), n);
        multiply(ds, v, grad_tile(stage), n);
        mask.hide(p, query + n);
        differentiate(p, ds, stage, n, to_log2);
        accumulate(dv, p, grad_tile(stage), n);
        accumulate(dk, ds, query_tile(stage), n);
      }
      query = next;
      head = next_head;
    }
    const int kv_head = head / setup.group() - 1;  // found anew, a register less in the loop
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      const int mine = row + kPart * m, s = mask.first + kPart * m;
      if constexpr (Setup::kIsBlock) {
        add_rows(dk[m], setup.scale, dkeys, b, kv_head, s, setup.num_keys());
        add_rows(dv[m], 1.0F, dvalues, b, kv_head, s, setup.num_keys());
      } else {
        store_rows(k.tile, mine, dk[m], setup.scale, setup.scale, dkeys, b, kv_head, s,
                   setup.length);
        store_rows(v.tile, mine, dv[m], 1.0F, 1.0F, dvalues, b, kv_head, s, setup.length);
      }
    }
  }

 private:
  // Scores become probabilities, and their gradients those of scores.
  ATOLL_DEVICE void differentiate(Scores& p, Scores& ds, int stage, int first,
                                  float to_log2) const {
    ATOLL_UNROLL
    for (int j = 0; j < kStep / 8; ++j) {
      const int mine = first + 8 * j + lane_id() % 4 * 2;
      const auto lses = numbers(stage).template load<2>(mine);
      const auto deltas = numbers(stage).template load<2>(kQueries + mine);
      ATOLL_UNROLL
      for (int e = 0; e < 4 * kParts; ++e) {
        float& score = p[e / 4][j][e % 4];
        float& grad = ds[e / 4][j][e % 4];
        score = exp2_approximate(fmaf(score, to_log2, -lses[e % 2] * kLog2E));
        grad = score * (grad - deltas[e % 2]);
      }
    }
  }
};

}  // namespace atl::ops::cuda
