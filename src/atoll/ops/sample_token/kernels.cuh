#pragma once

// Drawing a token: chunks of the logits are sorted and their weights summed, block by block, and
// one block then finds the tokens at which sums over all chunks cross a bound. All numbers that
// decide are whole: no order changes them.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/sample_token/cuda_token_weights.h"

namespace atl::ops::cuda {

/// Logits that a block takes.
constexpr int kLogitChunk = 2048;
/// The place of a bad logit where there is none.
constexpr std::uint32_t kNoLogit = 0xffffffffU;

template <typename T>
ATOLL_DEVICE T warp_most(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const T other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

/// The largest rank of each chunk and the place of its first bad logit; with kSorts also its ranks
/// in falling order, and zeros where it is short.
template <bool kSorts>
struct LogitChunks {
  static constexpr const char* kName = "logit_chunks";
  static constexpr int kMaxThreads = 256;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static constexpr int kRankBytes = kSorts ? kLogitChunk * 8 : 0;
  Global<const float> logits;   // (V)
  Global<std::uint64_t> ranks;  // (chunks, kLogitChunk), for kSorts
  Global<std::uint64_t> best;   // (chunks)
  Global<std::uint32_t> bad;    // (chunks)

  static constexpr int shared_bytes() { return kRankBytes + kWarps * 16; }

  // Bitonic (Batcher 1968).
  ATOLL_DEVICE void sort(const Shared<std::uint64_t>& all) const {
    for (int size = 2; size <= kLogitChunk; size *= 2) {
      for (int stride = size / 2; stride > 0; stride /= 2) {
        sync_block();
        for (int pair = thread(); pair < kLogitChunk / 2; pair += num_threads()) {
          const int i = 2 * pair - (pair & (stride - 1));
          const std::uint64_t a = all.load(i), b = all.load(i + stride);
          const bool falls = (i & size) == 0;
          if ((a < b) != falls) continue;
          all.store(i, b);
          all.store(i + stride, a);
        }
      }
    }
    sync_block();
  }

  ATOLL_DEVICE void operator()() const {
    const std::int64_t begin = std::int64_t{block_x()} * kLogitChunk;
    const Shared<std::uint64_t> all =
        shared_memory<std::uint64_t>(0, kSorts ? kLogitChunk : kWarps);
    std::uint64_t largest = 0;
    std::uint32_t good_before = 0;  // what a bad place is away from kNoLogit
    for (int i = thread(); i < kLogitChunk; i += num_threads()) {
      std::uint64_t rank = 0;
      if (begin + i < logits.size) {
        const float logit = logits.load(begin + i);
        const auto place = static_cast<std::uint32_t>(begin + i);
        rank = token_rank(logit, place);
        if (is_bad_logit(logit))
          good_before = kNoLogit - place > good_before ? kNoLogit - place : good_before;
      }
      largest = rank > largest ? rank : largest;
      if constexpr (kSorts) all.store(i, rank);
    }
    largest = warp_most(largest);
    good_before = warp_most(good_before);
    const auto bests = shared_memory<std::uint64_t>(kRankBytes, kWarps);
    const auto bads = shared_memory<std::uint32_t>(kRankBytes + kWarps * 8, kWarps);
    if (lane() == 0) {
      bests.store(warp(), largest);
      bads.store(warp(), good_before);
    }
    if constexpr (kSorts) {
      sort(all);
      for (int i = thread(); i < kLogitChunk; i += num_threads()) {
        ranks.store(begin + i, all.load(i));
      }
    } else {
      sync_block();
    }
    if (thread() != 0) return;
    for (int w = 1; w < kWarps; ++w) {
      largest = bests.load(w) > largest ? bests.load(w) : largest;
      good_before = bads.load(w) > good_before ? bads.load(w) : good_before;
    }
    best.store(block_x(), largest);
    bad.store(block_x(), kNoLogit - good_before);
  }
};

/// The largest of `values`, in each lane of a warp the same.
ATOLL_DEVICE std::uint64_t most_of(const Global<const std::uint64_t>& values) {
  std::uint64_t most = 0;
  for (std::int64_t i = lane(); i < values.size; i += kWarp) {
    const std::uint64_t value = values.load(i);
    most = value > most ? value : most;
  }
  return warp_most(most);
}

/// sums[i] = the weights of the chunk's elements up to i: of the sorted ranks, or of the logits as
/// they lie.
template <bool kSorted>
struct ChunkWeights {
  static constexpr const char* kName = "chunk_weights";
  static constexpr int kMaxThreads = 256;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static constexpr int kEach = kLogitChunk / kMaxThreads;
  Global<const float> logits;         // (V), for !kSorted
  Global<const std::uint64_t> ranks;  // (chunks, kLogitChunk), for kSorted
  Global<const std::uint64_t> best;   // (chunks)
  Global<std::uint64_t> sums;         // (chunks, kLogitChunk)
  float temperature;

  static constexpr int shared_bytes() { return kWarps * 8; }

  ATOLL_DEVICE std::uint64_t weight(std::int64_t i, float largest) const {
    if constexpr (kSorted) {
      const std::uint64_t rank = ranks.load(i);
      return rank == 0 ? 0 : token_weight((logit_of_rank(rank) - largest) / temperature);
    } else {
      return i < logits.size ? token_weight((logits.load(i) - largest) / temperature) : 0;
    }
  }

  ATOLL_DEVICE void operator()() const {
    const float largest = logit_of_rank(most_of(best));
    const std::int64_t begin = std::int64_t{block_x()} * kLogitChunk + thread() * kEach;
    std::uint64_t own[kEach];
    std::uint64_t sum = 0;
    ATOLL_UNROLL
    for (int i = 0; i < kEach; ++i) {
      sum += weight(begin + i, largest);
      own[i] = sum;
    }
    std::uint64_t upto = sum;  // of the warp's lanes up to this one
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const std::uint64_t other = shuffle(upto, (lane() - distance) & (kWarp - 1));
      if (lane() >= distance) upto += other;
    }
    const auto of_warps = shared_memory<std::uint64_t>(0, kWarps);
    if (lane() == kWarp - 1) of_warps.store(warp(), upto);
    sync_block();
    std::uint64_t before = upto - sum;
    for (int w = 0; w < warp(); ++w) before += of_warps.load(w);
    ATOLL_UNROLL
    for (int i = 0; i < kEach; ++i) sums.store(begin + i, before + own[i]);
  }
};

/// result = the token and the bits of a bad logit, as ops/sample_token/sample_token.h says. One
/// block.
struct ChooseToken {
  static constexpr const char* kName = "choose_token";
  static constexpr int kMaxThreads = 1024;
  static constexpr int kWarps = kMaxThreads / kWarp;
  Global<const float> logits;         // (V)
  Global<const std::uint64_t> ranks;  // (chunks, kLogitChunk), sorted, where tokens are cut off
  Global<const std::uint64_t> sums;   // (chunks, kLogitChunk)
  Global<const std::uint64_t> best;   // (chunks)
  Global<const std::uint32_t> bad;    // (chunks)
  Global<std::int32_t> result;        // (2)
  float temperature;
  std::int64_t top_k;
  std::uint64_t share;
  std::uint64_t random;
  bool is_cut;

  static constexpr int shared_bytes() { return kMaxThreads * 8; }

  // How many elements of the chunk have this rank at least.
  ATOLL_DEVICE int count_from(std::int64_t chunk, std::uint64_t rank) const {
    int count = 0;
    for (int width = kLogitChunk; width > 0; width /= 2) {
      if (count + width > kLogitChunk) continue;
      if (ranks.load(chunk * kLogitChunk + count + width - 1) >= rank) count += width;
    }
    return count;
  }

  // Over all chunks, the number of elements that have a rank at least, or the sum of their weights.
  // Lanes may ask for different ranks; the lanes of all warps ask for the same.
  ATOLL_DEVICE std::uint64_t sum_from(std::uint64_t rank, bool counts) const {
    std::uint64_t own = 0;
    for (std::int64_t chunk = warp(); chunk < best.size; chunk += num_threads() / kWarp) {
      const int count = count_from(chunk, rank);
      if (counts)
        own += static_cast<std::uint64_t>(count);
      else
        own += count == 0 ? 0 : sums.load(chunk * kLogitChunk + count - 1);
    }
    const auto all = shared_memory<std::uint64_t>(0, kMaxThreads);
    all.store(thread(), own);
    sync_block();
    std::uint64_t sum = 0;
    for (int w = 0; w < num_threads() / kWarp; ++w) sum += all.load(w * kWarp + lane());
    sync_block();
    return sum;
  }

  // The largest rank from which on the sum is `least` at least: five bits at a time, from the
  // highest on. It is that of an element.
  ATOLL_DEVICE std::uint64_t find(std::uint64_t least, bool counts) const {
    std::uint64_t rank = 0;
    for (int shift = 60; shift >= 0; shift -= 5) {
      const std::uint64_t tried = rank | static_cast<std::uint64_t>(lane()) << shift;
      const std::uint32_t reach = ballot(sum_from(tried, counts) >= least);
      int digit = 0;
      while (digit < kWarp - 1 && (reach >> (digit + 1) & 1U) != 0) ++digit;
      rank |= static_cast<std::uint64_t>(digit) << shift;
    }
    return rank;
  }

  ATOLL_DEVICE std::uint64_t draw_sorted() const {
    std::uint64_t total = sum_from(0, false);
    if (top_k > 0 && top_k < logits.size) {
      total = sum_from(find(static_cast<std::uint64_t>(top_k), true), false);
    }
    if (share < std::uint64_t{1} << 32)
      total = sum_from(find(least_share(total, share), false), false);
    return token_of_rank(find(drawn_below(random, total) + 1, false));
  }

  // One thread.
  ATOLL_DEVICE std::uint64_t draw_unsorted() const {
    std::uint64_t total = 0;
    for (std::int64_t c = 0; c < best.size; ++c) total += sums.load((c + 1) * kLogitChunk - 1);
    std::uint64_t left = drawn_below(random, total);
    std::int64_t chunk = 0;
    for (; chunk + 1 < best.size; ++chunk) {
      const std::uint64_t here = sums.load((chunk + 1) * kLogitChunk - 1);
      if (left < here) break;
      left -= here;
    }
    int count = 0;  // elements whose sums are not above what is left
    for (int width = kLogitChunk; width > 0; width /= 2) {
      if (count + width > kLogitChunk) continue;
      if (sums.load(chunk * kLogitChunk + count + width - 1) <= left) count += width;
    }
    return static_cast<std::uint64_t>(chunk) * kLogitChunk + static_cast<std::uint64_t>(count);
  }

  ATOLL_DEVICE void operator()() const {
    std::uint32_t good_before = 0;
    for (std::int64_t c = lane(); c < bad.size; c += kWarp) {
      const std::uint32_t away = kNoLogit - bad.load(c);
      good_before = away > good_before ? away : good_before;
    }
    good_before = warp_most(good_before);
    const std::uint64_t top = most_of(best);
    std::int32_t token = -1;
    float logit = 0;
    if (good_before > 0) {
      logit = logits.load(kNoLogit - good_before);
    } else if (temperature == 0 || logit_of_rank(top) < -0x1.fffffep127F) {
      token = static_cast<std::int32_t>(token_of_rank(top));
    } else if (is_cut) {
      token = static_cast<std::int32_t>(draw_sorted());
    } else if (thread() == 0) {
      token = static_cast<std::int32_t>(draw_unsorted());
    }
    if (thread() != 0) return;
    result.store(0, token);
    result.store(1, std::bit_cast<std::int32_t>(logit));
  }
};

using SampleTokenKernels = KernelList<LogitChunks<false>, LogitChunks<true>, ChunkWeights<false>,
                                      ChunkWeights<true>, ChooseToken>;

}  // namespace atl::ops::cuda
