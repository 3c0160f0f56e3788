#pragma once

// Which rows blocks and warps of attention with tensor cores have, and what those rows see.

#include "atoll/ops/attention/tiles.cuh"

namespace atl::ops::cuda {

/// Which tile of `rows` rows, of which head of which sequence, a block has. Blocks start in order:
/// of 64 heads at a time, first the tiles that have most to do, so that what the heads read stays
/// in the cache, and short ones end the work.
struct TilePlace {
  static constexpr int kHeadsAtOnce = 64;
  int first;
  int head;
  int b;

  ATOLL_DEVICE static TilePlace of_block(int rows, int length, int heads, bool is_last_first) {
    const int tiles = (length + rows - 1) / rows, all = num_blocks_x() / tiles;
    const int before = block_x() / (tiles * kHeadsAtOnce) * kHeadsAtOnce;
    const int at_once = all - before < kHeadsAtOnce ? all - before : kHeadsAtOnce;
    const int at = block_x() - before * tiles;
    const int tile = at / at_once, any_head = before + at % at_once;
    return {(is_last_first ? tiles - 1 - tile : tile) * rows, any_head % heads, any_head / heads};
  }
};

/// The first of a warp's rows in a block's tile, of kWarps warps, 2 or 4, with 16 kParts rows each.
/// The warps' work differs, and which core a warp has hangs on its number: so blocks count up and
/// down by turns.
template <int kParts, int kWarps = kAttentionWarps>
ATOLL_DEVICE int warp_row() {
  return (warp_id() % kWarps ^ (block_x() % 2 * (kWarps - 1))) * kPart * kParts;
}

/// What the queries of a warp see, 16 kParts of them. It lies in shared memory, from byte kOffset
/// on, as registers are dearer in the loops.
template <int kParts, typename Setup, int kOffset>
struct QueryMask {
  static constexpr int kBytes = 8 * 4 * kAttentionWarps;
  /// The first query, its head and sequence; the first key that any of the queries sees, and the
  /// last; the first that all see, and the last.
  enum Kept { kFirst, kHead, kBatch, kAnyFrom, kAnyLast, kAllFrom, kAllLast };
  const Setup& setup;

  ATOLL_DEVICE static Shared<int> memory() {
    return shared_memory<int>(kOffset, 8 * kAttentionWarps);
  }
  ATOLL_DEVICE static int kept(Kept what) { return memory().load(8 * warp_id() + what); }
  /// To be called before the others, with a sync_warp() between.
  ATOLL_DEVICE void keep(int b, int head, int first) const {
    const int end = first + kPart * kParts;
    const int last = (end < setup.length ? end : setup.length) - 1;
    Pack<int, 4> sees = {-1, 0, -1, 0};
    if (first <= last) {
      sees = {setup.own_key(last), setup.first_key(b, last), setup.own_key(first), 0};
    }
    const int from = first <= last ? setup.first_key(b, first) : 0;
    if (lane_id() != 0) return;
    memory().template store<4>(8 * warp_id(), {first, head, b, from});
    memory().template store<4>(8 * warp_id() + kAnyLast, sees);
  }
  /// Whether any sees any of keys [key, key + count).
  ATOLL_DEVICE bool sees(int key, int count) const {
    return key <= kept(kAnyLast) && key + count > kept(kAnyFrom);
  }
  /// Hides of the scores of keys [key, ...) those that a query does not see.
  template <int kN8>
  ATOLL_DEVICE void hide(float (&s)[kParts][kN8][4], int key) const {
    if (key >= kept(kAllFrom) && key + 8 * kN8 - 1 <= kept(kAllLast)) return;
    const int b = kept(kBatch), first = kept(kFirst);
    ATOLL_UNROLL
    for (int r = 0; r < 2 * kParts; ++r) {
      const int t = first + 8 * r + lane_id() / 4;
      const int mine = key + lane_id() % 4 * 2;
      const int from = (t < setup.length ? setup.first_key(b, t) : 0) - mine;
      const int last = setup.own_key(t) - mine;
      ATOLL_UNROLL
      for (int j = 0; j < kN8; ++j) {
        ATOLL_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (8 * j + e < from || 8 * j + e > last) s[r / 2][j][r % 2 * 2 + e] = kHidden;
        }
      }
    }
  }
};

/// Which queries see the keys of a warp, 16 kParts of them from `first` on. Queries that see a key
/// follow one another.
template <int kParts, typename Setup>
struct KeyMask {
  const Setup& setup;
  int b, first;
  int any_end, all_end;  // behind the last query that sees any, and that sees all

  ATOLL_DEVICE KeyMask(const Setup& setup_, int b_, int first_)
      : setup(setup_),
        b(b_),
        first(first_),
        any_end(end_of_queries(setup, b, last(), setup.first_query(first))),
        all_end(end_of_queries(setup, b, first, setup.first_query(first))) {}
  ATOLL_DEVICE int last() const {
    const int end = first + kPart * kParts;
    return (end < setup.num_keys() ? end : setup.num_keys()) - 1;
  }
  /// Behind the last query from `from` on whose first key is at most `key`, found by halving: see
  /// first_key.
  ATOLL_DEVICE static int end_of_queries(const Setup& setup, int b, int key, int from) {
    int end = setup.length;
    if (setup.window == 0 && setup.positions.size == 0) return end;
    int sees = from - 1;
    while (sees + 1 < end) {
      const int middle = (sees + end) / 2;
      if (setup.first_key(b, middle) <= key)
        sees = middle;
      else
        end = middle;
    }
    return end;
  }
  /// Whether any of queries [query, query + count) sees any.
  ATOLL_DEVICE bool sees(int query, int count) const {
    return query < any_end && query + count > setup.first_query(first);
  }
  /// Hides of the scores of queries [query, ...) those of keys that they do not see.
  template <int kN8>
  ATOLL_DEVICE void hide(float (&s)[kParts][kN8][4], int query) const {
    if (query >= setup.first_query(last()) && query + 8 * kN8 <= all_end) return;
    ATOLL_UNROLL
    for (int j = 0; j < kN8; ++j) {
      ATOLL_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int t = query + 8 * j + lane_id() % 4 * 2 + e;
        const int mine = first + lane_id() / 4;
        const int from = (t < setup.length ? setup.first_key(b, t) : 0) - mine;
        const int own = setup.own_key(t) - mine;
        ATOLL_UNROLL
        for (int r = 0; r < 2 * kParts; ++r) {
          if (8 * r < from || 8 * r > own) s[r / 2][j][r % 2 * 2 + e] = kHidden;
        }
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
  value = fmaxf(value, shuffle_xor(value, 1));
  return fmaxf(value, shuffle_xor(value, 2));
}

}  // namespace atl::ops::cuda
