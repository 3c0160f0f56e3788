#pragma once

// Causal attention with tensor cores, for bf16 heads of at most 128 elements: tiles of queries
// against tiles of keys, softmax along the keys (Dao et al. 2022, 2023). A gradient has two
// kernels, one that goes along the keys of each query and one along the queries of each key, so
// that no sum is shared and all have one order. Heads of fewer elements than kDim are padded with
// zeroes.
//
// A block has four warps, each with 32 rows of its tile: with so many, what a warp reads of the
// other tile from shared memory serves two products, and shared memory is not what all wait for.
// What a loop goes along comes into two buffers by turns, so that one barrier a tile is enough:
// what is copied into now was last read before the barrier of this turn. Rows of its own a warp
// copies itself.

#include "atoll/ops/attention/mma_backward.cuh"
#include "atoll/ops/attention/mma_pairs.cuh"

namespace atl::ops::cuda {

/// out and lse of a tile of queries.
template <int kDim, typename Setup = AttentionSetup>
struct AttentionMmaForward {
  static constexpr const char* kName = "attention_mma_forward";
  static constexpr int kMaxThreads = kAttentionThreads;
  static constexpr int kParts = 2;
  static constexpr int kRows = kAttentionWarps * kPart * kParts;
  static constexpr int kKeys = kDim > 64 ? 32 : 64;
  using Rows = Tile<kRows, kDim>;
  using Keys = Tile<kKeys, kDim>;
  using Scores = float[kParts][kKeys / 8][4];
  using Sums = float[kParts][kDim / 8][4];
  static constexpr int kMaskAt = Rows::kBytes + 4 * Keys::kBytes;
  using Mask = QueryMask<kParts, Setup, kMaskAt>;
  static constexpr int shared_bytes() { return kMaskAt + Mask::kBytes; }
  HeadRows<const Bf16> queries, keys, values;
  HeadRows<AttentionResult<Bf16, Setup>> out;
  Global<float> lse;  // (B, heads, T), or empty
  Setup setup;

  ATOLL_DEVICE Keys key_tile(int stage) const { return {Rows::kBytes + stage * Keys::kBytes}; }
  ATOLL_DEVICE Keys value_tile(int stage) const {
    return {Rows::kBytes + (2 + stage) * Keys::kBytes};
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
    LeftRows<kParts, kRows, kDim, (kDim <= 64)> q = {{0}, row, {}};
    const int last = first + kRows < setup.length ? first + kRows : setup.length;
    const int begin = setup.first_key(b, first) / kKeys * kKeys;
    const int end = setup.own_key(last - 1) + 1;
    q.tile.template copy_own<kPart * kParts>(queries, b, head, first, setup.length, row);
    commit_copies();
    const std::int64_t from_keys = Keys::source(keys, b, kv_head);
    const std::int64_t from_values = Keys::source(values, b, kv_head);
    copy(begin / kKeys % 2, from_keys, from_values, begin, end);
    const Mask mask = {setup};
    mask.keep(b, head, first + row);
    Softmax softmax(setup.scale);
    Sums sum = {};
    wait_copies<1>();
    sync_warp();
    q.load();
    for (int key = begin; key < end; key += kKeys) {
      const int stage = key / kKeys % 2;
      wait_copies<0>();
      sync_block();
      if (key + kKeys < end) copy(stage ^ 1, from_keys, from_values, key + kKeys, end);
      if (!mask.sees(key, kKeys)) continue;
      Scores p = {};
      multiply(p, q, key_tile(stage), 0);
      mask.hide(p, key);
      softmax.exponentiate(p, sum);
      accumulate(sum, p, value_tile(stage), 0);
    }
    if constexpr (Setup::kIsBlock) wait_copies<0>();  // where no query sees a key
    ATOLL_UNROLL
    for (int m = 0; m < kParts; ++m) {
      finish(mask.kept(Mask::kBatch), mask.kept(Mask::kHead), mask.kept(Mask::kFirst) + kPart * m,
             sum[m], softmax.shift[m], softmax.total[m]);
    }
  }

 private:
  // A row's exponentials are over 2^shift. That is what its largest score so far comes to, or at
  // most 2^kSlack less: so that sums are scaled only where scores grow.
  struct Softmax {
    static constexpr float kSlack = 8;
    static constexpr float kNone = -1e10F;  // nothing seen yet; hidden scores are far below it
    float to_log2;
    float shift[kParts][2], total[kParts][2];

    ATOLL_DEVICE explicit Softmax(float scale) : to_log2(scale * kLog2E) {
      ATOLL_UNROLL
      for (int r = 0; r < 2 * kParts; ++r) {
        shift[r / 2][r % 2] = kNone;
        total[r / 2][r % 2] = 0;
      }
    }
    // Scores become exponentials.
    ATOLL_DEVICE void exponentiate(Scores& p, Sums& sum) {
      float top[kParts][2];
      bool grows = false;
      ATOLL_UNROLL
      for (int r = 0; r < 2 * kParts; ++r) {
        const int m = r / 2, i = r % 2;
        top[m][i] = kHidden;
        ATOLL_UNROLL
        for (int j = 0; j < kKeys / 8; ++j) {
          top[m][i] = fmaxf(top[m][i], fmaxf(p[m][j][2 * i], p[m][j][2 * i + 1]));
        }
        grows = grows || fmaf(top[m][i], to_log2, -shift[m][i]) > kSlack;
      }
      if (any_lane(grows)) raise(top, sum);
      ATOLL_UNROLL
      for (int r = 0; r < 2 * kParts; ++r) {
        const int m = r / 2, i = r % 2;
        ATOLL_UNROLL
        for (int j = 0; j < kKeys / 8; ++j) {
          float(&pair)[4] = p[m][j];
          pair[2 * i] = exp2_approximate(fmaf(pair[2 * i], to_log2, -shift[m][i]));
          pair[2 * i + 1] = exp2_approximate(fmaf(pair[2 * i + 1], to_log2, -shift[m][i]));
          total[m][i] += pair[2 * i] + pair[2 * i + 1];
        }
      }
    }
    ATOLL_DEVICE void raise(const float (&top)[kParts][2], Sums& sum) {
      ATOLL_UNROLL
      for (int r = 0; r < 2 * kParts; ++r) {
        const int m = r / 2, i = r % 2;
        const float largest = row_max(top[m][i]) * to_log2;
        const float now = largest - shift[m][i] > kSlack ? largest : shift[m][i];
        const float before = exp2_approximate(shift[m][i] - now);
        shift[m][i] = now;
        total[m][i] *= before;
        ATOLL_UNROLL
        for (int j = 0; j < kDim / 8; ++j) {
          sum[m][j][2 * i] *= before;
          sum[m][j][2 * i + 1] *= before;
        }
      }
    }
  };

  // Rows [first, first + 16) go to memory.
  ATOLL_DEVICE void finish(int b, int head, int first, const float (&sum)[kDim / 8][4],
                           const float (&shift)[2], const float (&total)[2]) const {
    const float sums[2] = {row_sum(total[0]), row_sum(total[1])};
    if constexpr (Setup::kIsBlock) {
      join(b, head, first, sum, shift, sums);
    } else {
      ATOLL_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int t = first + lane_id() / 4 + 8 * i;
        if (lane_id() % 4 == 0 && t < setup.length && lse.size > 0) {
          lse.store(setup.lse_at(b, head, t), fmaf(shift[i], kLn2, log_f32(sums[i])));
        }
      }
      store_rows(Rows{0}, first % kRows, sum, 1.0F / sums[0], 1.0F / sums[1], out, b, head, first,
                 setup.length);
    }
  }
  // What a block's keys have given joins what the rows have.
  ATOLL_DEVICE void join(int b, int head, int first, const float (&sum)[kDim / 8][4],
                         const float (&shift)[2], const float (&sums)[2]) const {
    float before[2], now[2];
    ATOLL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int t = first + lane_id() / 4 + 8 * i;
      const bool is_there = t < setup.length;
      const std::int64_t at = setup.lse_at(b, head, t);
      // Of the four lanes of a row one reads what it then writes.
      const bool reads = setup.merges && is_there && lane_id() % 4 == 0;
      const float old = shuffle(reads ? lse.load(at) : 0.0F, lane_id() / 4 * 4);
      const auto merge = AttentionMerge::of(setup.merges, old, shift[i] * kLn2, sums[i]);
      before[i] = merge.before;
      now[i] = merge.now;
      if (lane_id() % 4 == 0 && is_there) lse.store(at, merge.lse);
    }
    join_rows<kDim>(sum, before, now, out, b, head, first, setup.length);
  }
};

using AttentionMmaKernels = KernelList<
    AttentionMmaForward<64>, AttentionMmaForward<128>, AttentionMmaQueries<64>,
    AttentionMmaQueries<128>, AttentionMmaKeys<64>, AttentionMmaKeys<128>,
    AttentionMmaForward<64, AttentionBlockSetup>, AttentionMmaForward<128, AttentionBlockSetup>,
    AttentionMmaQueries<64, AttentionBlockSetup>, AttentionMmaQueries<128, AttentionBlockSetup>,
    AttentionMmaKeys<64, AttentionBlockSetup>, AttentionMmaKeys<128, AttentionBlockSetup>>;

}  // namespace atl::ops::cuda
