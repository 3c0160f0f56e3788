#pragma once

// The gradient of keys and values of more than 64 elements: see attention_mma_backward.cuh. Beside
// the sums of both, and keys and values themselves, a warp would have registers for 16 rows alone.
// So a pair of warps has 32 rows: the first warp has keys and the sums of dv, and finds
// probabilities; the second has values and the sums of dk, takes the probabilities from shared
// memory, and is a tile of queries behind the first, so that one barrier a tile is enough. A block
// has two pairs.

#include "atoll/ops/attention/mma_backward.cuh"

namespace atl::ops::cuda {

template <typename Setup>
struct AttentionMmaKeys<128, Setup> {
  static constexpr const char* kName = "attention_mma_keys";
  static constexpr int kDim = 128;
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kParts = 2;
  static constexpr int kPairs = kAttentionWarps / 2;
  static constexpr int kRows = kPairs * kPart * kParts;
  static constexpr int kQueries = 32;
  static constexpr int kStep = 16;
  static constexpr int kCopiers = kMaxThreads / 2;
  static constexpr int kStages = 3;  // of this turn's queries, the last one's and the next
  using Rows = Tile<kRows, kDim>;
  using Queries = Tile<kQueries, kDim>;
  using Scores = float[kParts][kStep / 8][4];
  // Probabilities of two turns; queries, their gradients and numbers of three. Keys and values lie
  // there before all but the first turn's queries, and results behind all. Then what threads have
  // put aside of keys or values.
  static constexpr int kPiece = kWarp * kParts * (kStep / 8) * 4;  // of a pair in a step
  static constexpr int kPieces = kQueries / kStep;
  static constexpr int kTilesAt = 2 * kPairs * kPieces * kPiece * 4;
  static constexpr int kNumbersAt = kTilesAt + 2 * kStages * Queries::kBytes;
  static_assert(2 * Rows::kBytes <= kTilesAt + 4 * Queries::kBytes, "keys and values fit");
  static constexpr int kAsideAt = kNumbersAt + kStages * 2 * kQueries * 4;
  using Own = LeftAside<kParts, kRows, kDim, kMaxThreads>;
  static constexpr int shared_bytes() { return kAsideAt + Own::kBytes; }
  HeadRows<const Bf16> queries, keys, values, dout;
  Global<const float> lse;
  Global<const float> delta;  // (B, heads, T)
  HeadRows<AttentionResult<Bf16, Setup>> dkeys, dvalues;
  Setup setup;

  ATOLL_DEVICE Queries query_tile(int stage) const {
    return {kTilesAt + 2 * stage * Queries::kBytes};
  }
  ATOLL_DEVICE Queries grad_tile(int stage) const {
    return {kTilesAt + (2 * stage + 1) * Queries::kBytes};
  }
  // kQueries of lse, then as many of delta.
  ATOLL_DEVICE Shared<float> numbers(int stage) const {
    return shared_memory<float>(kNumbersAt + stage * 2 * kQueries * 4, 2 * kQueries);
  }
  // What a pair's first warp tells the second of a step.
  ATOLL_DEVICE Shared<float> piece(int buffer, int step) const {
    const int at = (buffer * kPairs + warp_id() % kPairs) * kPieces + step;
    return shared_memory<float>(at * kPiece * 4, kPiece);
  }
  ATOLL_DEVICE static int stage_of(int turn) { return (turn + kStages) % kStages; }
  ATOLL_DEVICE static bool is_second() { return warp_id() >= kPairs; }
  // First warps copy queries and numbers, second warps gradients. `from` is where the thread begins
  // to read of a head.
  ATOLL_DEVICE void copy(int stage, std::int64_t from, int b, int head, int first) const {
    if (is_second())
      return grad_tile(stage).template copy<kCopiers>(dout, from, first, setup.length);
    query_tile(stage).template copy<kCopiers>(queries, from, first, setup.length);
    if (thread_id() < 2 * kQueries) {
      const int t = first + thread_id() % kQueries;
      const bool is_lse = thread_id() < kQueries;
      const std::int64_t at = is_lse ? setup.lse_at(b, head, t) : setup.delta_at(b, head, t);
      copy_async<1>(numbers(stage), thread_id(), is_lse ? lse : delta, at, t < setup.length);
    }
  }

  ATOLL_DEVICE void operator()() const {
    const TilePlace place = TilePlace::of_block(kRows, setup.num_keys(), setup.kv_heads, false);
    const int first = place.first, b = place.b, row = warp_row<kParts, kPairs>();
    Own own = {{is_second() ? Rows::kBytes : 0}, row, kAsideAt, {}};
    const auto copy_mine = [&](const HeadRows<const Bf16>& from) {
      own.tile.template copy_own<kPart * kParts>(from, b, place.head, first, setup.num_keys(), row);
    };
    is_second() ? copy_mine(values) : copy_mine(keys);
    commit_copies();
    const int begin = setup.first_query(first);
    const int end = KeyMask<kParts, Setup>::end_of_queries(setup, b, first + kRows - 1, begin);
    int head = place.head * setup.group();
    const int last_head = head + setup.group();
    std::int64_t from = is_second() ? Queries::template source<kCopiers>(dout, b, head)
                                    : Queries::template source<kCopiers>(queries, b, head);
    copy(stage_of(-1), from, b, head, begin);
    commit_copies();
    const KeyMask<kParts, Setup> mask(setup, b, first + row);
    float sum[kParts][kDim / 8][4] = {};
    wait_copies<1>();
    sync_warp();
    own.load();
    // Turns that are kTurns apart use the same stage and buffer; the first, which has none before
    // it, those of the last.
    constexpr int kTurns = 2 * kStages;
    for (int query = begin, turn = -1;;) {
      wait_copies<0>();
      sync_block();
      const bool is_first = query == begin, is_last = query + kQueries >= end;
      const int next = is_last ? begin : query + kQueries, next_head = is_last ? head + 1 : head;
      const int next_turn = turn == kTurns - 1 ? 0 : turn + 1;
      if (is_last) from += setup.head_dim;
      if (next_head < last_head) copy(stage_of(next_turn), from, b, next_head, next);
      commit_copies();
      if (!is_second()) {
        if (head < last_head) add_values(sum, own, mask, turn, query);
      } else if (turn >= 0) {
        // The turn before this one; a head's first comes behind the last of the head before.
        const int before =
            is_first ? begin + (end - begin - 1) / kQueries * kQueries : query - kQueries;
        add_keys(sum, own, mask, turn == 0 ? kTurns - 1 : turn - 1, before);
      }
      if (head == last_head) break;
      query = next;
      head = next_head;
      turn = next_turn;
    }
    // Found anew where the loop has no register for it.
    const int kv_head = Setup::kIsBlock ? place.head : head / setup.group() - 1;
    if constexpr (!Setup::kIsBlock) sync_block();  // others read tiles where results go
    if (is_second())
      store(sum, setup.scale, dkeys, Rows::kBytes, b, kv_head, mask.first, row);
    else
      store(sum, 1.0F, dvalues, 0, b, kv_head, mask.first, row);
  }

 private:
  using Mask = KeyMask<kParts, Setup>;
  using Sums = float[kParts][kDim / 8][4];

  // Probabilities, for both warps, and dv.
  ATOLL_DEVICE void add_values(Sums& sum, const Own& own, const Mask& mask, int turn,
                               int query) const {
    const int stage = stage_of(turn), buffer = turn & 1;
    const float to_log2 = setup.scale * kLog2E;
    ATOLL_NO_UNROLL
    for (int n = 0; n < kQueries; n += kStep) {
      if (!mask.sees(query + n, kStep)) continue;
      Scores p = {};
      multiply(p, own, query_tile(stage), n);
      mask.hide(p, query + n);
      ATOLL_UNROLL
      for (int j = 0; j < kStep / 8; ++j) {
        const auto lses = numbers(stage).template load<2>(n + 8 * j + lane_id() % 4 * 2);
        ATOLL_UNROLL
        for (int m = 0; m < kParts; ++m) {
          Pack<float, 4> four;
          ATOLL_UNROLL
          for (int e = 0; e < 4; ++e) {
            p[m][j][e] = exp2_approximate(fmaf(p[m][j][e], to_log2, -lses[e % 2] * kLog2E));
            four[e] = p[m][j][e];
          }
          piece(buffer, n / kStep)
              .template store<4>(((m * kStep / 8 + j) * kWarp + lane_id()) * 4, four);
        }
      }
      accumulate(sum, p, grad_tile(stage), n);
    }
  }
  // Gradients of scores, and dk.
  ATOLL_DEVICE void add_keys(Sums& sum, const Own& own, const Mask& mask, int turn,
                             int query) const {
    const int stage = stage_of(turn), buffer = turn & 1;
    ATOLL_NO_UNROLL
    for (int n = 0; n < kQueries; n += kStep) {
      if (!mask.sees(query + n, kStep)) continue;
      Scores ds = {};
      multiply(ds, own, grad_tile(stage), n);
      ATOLL_UNROLL
      for (int j = 0; j < kStep / 8; ++j) {
        const auto deltas =
            numbers(stage).template load<2>(kQueries + n + 8 * j + lane_id() % 4 * 2);
        ATOLL_UNROLL
        for (int m = 0; m < kParts; ++m) {
          const auto p = piece(buffer, n / kStep)
                             .template load<4>(((m * kStep / 8 + j) * kWarp + lane_id()) * 4);
          ATOLL_UNROLL
          for (int e = 0; e < 4; ++e) ds[m][j][e] = p[e] * (ds[m][j][e] - deltas[e % 2]);
        }
      }
      accumulate(sum, ds, query_tile(stage), n);
    }
  }
  ATOLL_DEVICE void store(const Sums& sum, float factor,
                          const HeadRows<AttentionResult<Bf16, Setup>>& to, int tile, int b,
                          int kv_head, int first, int row) const {
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      const int s = first + kPart * m;
      if constexpr (Setup::kIsBlock)
        add_rows(sum[m], factor, to, b, kv_head, s, setup.num_keys());
      else
        store_rows(Rows{tile}, row + kPart * m, sum[m], factor, factor, to, b, kv_head, s,
                   setup.length);
    }
  }
};

}  // namespace atl::ops::cuda
