#pragma once

// The router of a mixture of experts: a warp for each token, whose lanes take every 32nd expert.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/per_step.cuh"

namespace atl::ops::cuda {

/// An expert and its logit. Larger logits come first, of equal ones the lower number. A NaN comes
/// before all: it is chosen, and shows in the weights and in the loss.
struct RankedExpert {
  float logit;
  std::int32_t expert;

  ATOLL_DEVICE static bool is_nan(float x) { return x != x; }
  ATOLL_DEVICE bool is_before(const RankedExpert& other) const {
    const bool own_nan = is_nan(logit), other_nan = is_nan(other.logit);
    if (own_nan != other_nan) return own_nan;
    if (!own_nan && logit != other.logit) return logit > other.logit;
    return expert < other.expert;
  }
};

/// The sum of e^(logit - top) over the row that begins at `begin`, in each lane of a warp.
ATOLL_DEVICE float sum_of_exponentials(const Global<const float>& logits, std::int64_t begin,
                                       int num_experts, float top) {
  float sum = 0;
  for (int e = lane(); e < num_experts; e += kWarp) sum += exp_f32(logits.load(begin + e) - top);
  return warp_sum(sum);
}

/// experts and weights of ops::route_tokens.
struct RouteTokens {
  static constexpr const char* kName = "route_tokens";
  static constexpr int kMaxThreads = 128;
  Global<const float> logits;    // (rows, num_experts)
  Global<std::int32_t> experts;  // (rows, k)
  Global<float> weights;         // (rows, k)
  std::int64_t rows;
  int num_experts;
  int k;
  bool normalize;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    RankedExpert last = {0, -1};
    float top = 0, sum = 0;
    for (int j = 0; j < k; ++j) {
      last = next_after(row, last, j == 0);
      if (j == 0) top = last.logit;
      sum += exp_f32(last.logit - top);
      // The lane that makes a weight of it keeps the logit there meanwhile.
      if (lane() == j % kWarp) {
        experts.store(row * k + j, last.expert);
        weights.store(row * k + j, last.logit);
      }
    }
    if (!normalize) sum = sum_of_exponentials(logits, row * num_experts, num_experts, top);
    const float scale = top + log_f32(sum);
    for (int j = lane(); j < k; j += kWarp) {
      weights.store(row * k + j, exp_f32(weights.load(row * k + j) - scale));
    }
  }

 private:
  // The first expert of a row behind `last`, or of all.
  ATOLL_DEVICE RankedExpert next_after(std::int64_t row, RankedExpert last, bool of_all) const {
    RankedExpert best = {0, num_experts};  // none
    for (int e = lane(); e < num_experts; e += kWarp) {
      const RankedExpert one = {logits.load(row * num_experts + e), e};
      if (!of_all && !last.is_before(one)) continue;
      if (best.expert == num_experts || one.is_before(best)) best = one;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      RankedExpert other;
      other.logit = shuffle_xor(best.logit, mask);
      other.expert = shuffle_xor(best.expert, mask);
      if (other.expert == num_experts) continue;
      if (best.expert == num_experts || other.is_before(best)) best = other;
    }
    return best;
  }
};

/// What a token's losses are multiplied with: load balance, times the number of experts, and z.
struct alignas(8) RouterScales {
  float balance;
  float z;
};

/// dlogits of ops::route_tokens_backward. counts are those that f_e are of, empty where there is no
/// load balance.
struct RouteTokensBackward {
  static constexpr const char* kName = "route_tokens_backward";
  static constexpr int kMaxThreads = 128;
  Global<const float> logits;          // (rows, num_experts)
  Global<const std::int32_t> experts;  // (rows, k)
  Global<const float> weights;         // (rows, k)
  Global<const float> dweights;        // (rows, k)
  Global<const double> counts;         // (num_experts)
  Global<float> dlogits;               // (rows, num_experts)
  std::int64_t rows;
  int num_experts;
  int k;
  bool normalize;
  PerStep<RouterScales> scales;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t row = std::int64_t{block_x()} * (num_threads() / kWarp) + warp();
    if (row >= rows) return;
    const std::int64_t begin = row * num_experts;
    float top = logits.load(begin);
    for (int e = lane(); e < num_experts; e += kWarp) {
      const float logit = logits.load(begin + e);
      top = logit > top ? logit : top;
    }
    top = warp_max(top);
    const float log_sum = top + log_f32(sum_of_exponentials(logits, begin, num_experts, top));
    const auto [balance, z] = scales.get();
    const float scale = balance_scale(balance);
    // The losses see every probability p: dlogit = p (b - sum p b) + 2 z log_sum p.
    float mean = 0;
    for (int e = lane(); e < num_experts; e += kWarp) {
      const float p = exp_f32(logits.load(begin + e) - log_sum);
      dlogits.store(begin + e, p);
      mean += p * balance_of(e, scale);
    }
    mean = warp_sum(mean);
    // sum w dw. Weights that are not divided by their sum are probabilities among all the others.
    float weighted = 0;
    for (int j = 0; j < k; ++j) weighted += weights.load(row * k + j) * dweights.load(row * k + j);
    const float of_all = 2.0F * z * log_sum - mean - (normalize ? 0.0F : weighted);
    for (int e = lane(); e < num_experts; e += kWarp) {
      dlogits.store(begin + e, dlogits.load(begin + e) * (of_all + balance_of(e, scale)));
    }
    for (int j = 0; j < k; ++j) {
      const std::int32_t e = experts.load(row * k + j);
      if (e % kWarp != lane()) continue;  // whose lane this is has just written it
      const float d = dweights.load(row * k + j) - (normalize ? weighted : 0.0F);
      dlogits.store(begin + e, dlogits.load(begin + e) + weights.load(row * k + j) * d);
    }
  }

 private:
  // What a count is multiplied with: balance over the number of tokens.
  ATOLL_DEVICE float balance_scale(float balance) const {
    float choices = 0;
    for (int e = lane(); e < num_experts; e += kWarp) choices += count_of(e);
    choices = warp_sum(choices);
    return counts.size == 0 ? 0.0F : balance * static_cast<float>(k) / choices;
  }
  ATOLL_DEVICE float count_of(int e) const {
    return counts.size == 0 ? 0.0F : static_cast<float>(counts.load(e));
  }
  ATOLL_DEVICE float balance_of(int e, float scale) const { return scale * count_of(e); }
};

/// counts[e] = the sum of parts[part][e].
struct SumCounts {
  static constexpr const char* kName = "sum_counts";
  static constexpr int kMaxThreads = 128;
  Global<const std::int32_t> parts;  // (num_parts, size of counts)
  Global<double> counts;
  int num_parts;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t e = std::int64_t{block_x()} * num_threads() + thread();
    if (e >= counts.size) return;
    constexpr int kAtOnce = 16;  // loads on their way together
    std::int64_t sum = 0;
    const int end = num_parts;
    for (int first = 0; first < end; first += kAtOnce) {
      ATOLL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int part = first + i;
        sum += part < end ? parts.load(part * counts.size + e) : 0;
      }
    }
    counts.store(e, static_cast<double>(sum));
  }
};

/// Sums over a block's tokens, of which its warps take one each by turns: of the probabilities of
/// each expert; how often each was chosen; of z-losses; how many choices have no row.
struct RouterPartials {
  static constexpr const char* kName = "router_partials";
  static constexpr int kMaxThreads = 256;
  Global<const float> logits;          // (rows, num_experts)
  Global<const std::int32_t> experts;  // (rows, k)
  Global<const std::int32_t> places;   // (rows, k)
  Global<float> partials;              // (blocks, num_sums(num_experts))
  std::int64_t rows;
  std::int64_t rows_per_block;
  int num_experts;
  int k;

  static constexpr int num_sums(int num_experts) { return 2 * num_experts + 2; }
  /// Shared memory of a block, by default for as many experts as large models have.
  static constexpr int shared_bytes(int num_experts = 128) {
    return kMaxThreads / kWarp * num_sums(num_experts) * static_cast<int>(sizeof(float));
  }

  ATOLL_DEVICE void operator()() const {
    const int width = num_sums(num_experts), warps = num_threads() / kWarp;
    const Shared<float> box = shared_memory<float>(0, warps * width);
    const int own = warp() * width;
    for (int i = lane(); i < width; i += kWarp) box.store(own + i, 0.0F);
    sync_warp();
    const std::int64_t first = block_x() * rows_per_block;
    const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
    float z = 0, dropped = 0;
    for (std::int64_t row = first + warp(); row < last; row += warps) {
      add_row(box, own, row, z, dropped);
    }
    dropped = warp_sum(dropped);
    if (lane() == 0) {
      box.store(own + width - 2, z);
      box.store(own + width - 1, dropped);
    }
    sync_block();
    for (int i = thread(); i < width; i += num_threads()) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += box.load(w * width + i);
      partials.store(std::int64_t{block_x()} * width + i, sum);
    }
  }

 private:
  ATOLL_DEVICE static void add(const Shared<float>& box, int at, float value) {
    box.store(at, box.load(at) + value);
  }
  // z is the same in all lanes, dropped a lane's own. A lane alone adds to an expert's sums.
  ATOLL_DEVICE void add_row(const Shared<float>& box, int own, std::int64_t row, float& z,
                            float& dropped) const {
    const std::int64_t begin = row * num_experts;
    float top = logits.load(begin);
    for (int e = lane(); e < num_experts; e += kWarp) {
      const float logit = logits.load(begin + e);
      top = logit > top ? logit : top;
    }
    for (int first = 0; first < k; first += kWarp) add_choices(box, own, row, first, dropped);
    top = warp_max(top);
    const float log_sum = top + log_f32(sum_of_exponentials(logits, begin, num_experts, top));
    ATOLL_NO_UNROLL
    for (int e = lane(); e < num_experts; e += kWarp) {
      add(box, own + e, exp_f32(logits.load(begin + e) - log_sum));
    }
    z += log_sum * log_sum;
  }
  // A lane loads one of a warp's choices, which all lanes look at.
  ATOLL_DEVICE void add_choices(const Shared<float>& box, int own, std::int64_t row, int first,
                                float& dropped) const {
    const int j = first + lane(), left = k - first;
    std::int32_t mine = 0, place = 0;
    if (j < k) {
      mine = experts.load(row * k + j);
      place = places.load(row * k + j);
    }
    dropped += place < 0 ? 1.0F : 0.0F;
    ATOLL_NO_UNROLL
    for (int i = 0; i < (left < kWarp ? left : kWarp); ++i) {
      const std::int32_t e = shuffle(mine, i);
      if (e % kWarp == lane()) add(box, own + num_experts + e, 1.0F);
    }
  }
};

/// Adds RouterPartials' sums over all blocks to ops::add_router_sums' `sums`, in double, as these
/// grow over many steps. One block. `load` is what the balance loss counts by, or empty: these.
struct AddRouterSums {
  static constexpr const char* kName = "add_router_sums";
  static constexpr int kMaxThreads = 512;
  static constexpr int kWarps = kMaxThreads / kWarp;
  Global<const float> partials;  // (num_blocks, 2 num_experts + 2)
  Global<const double> load;     // (num_experts)
  Global<double> sums;           // (num_experts + 4)
  std::int64_t rows;
  int num_parts;
  int num_experts;
  int k;

  /// Of z-losses and of choices without a row, behind what warps have.
  static constexpr int kOthersAt = 2 * kWarps;
  static constexpr int shared_bytes() { return (kOthersAt + 2) * static_cast<int>(sizeof(double)); }

  ATOLL_DEVICE void operator()() const {
    const Shared<double> box = shared_memory<double>(0, kOthersAt + 2);
    // sum of count p over this thread's experts, and of count. Behind the experts are two sums
    // more.
    double balance = 0, choices = 0;
    const int columns = num_experts + 2;
    for (int e = thread(); e < columns; e += num_threads()) {
      const bool is_expert = e < num_experts;
      double chosen, probability;
      add_columns(num_experts + e, is_expert ? e : num_experts + e, chosen, probability);
      if (!is_expert) {
        box.store(kOthersAt + e - num_experts, chosen);
        continue;
      }
      const double count = load.size == 0 ? chosen : load.load(e);
      balance += count * probability;
      choices += count;
      sums.store(e, sums.load(e) + chosen);
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) balance += shuffle_xor(balance, mask);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) choices += shuffle_xor(choices, mask);
    if (lane() == 0) {
      box.store(warp(), balance);
      box.store(kWarps + warp(), choices);
    }
    sync_block();
    if (thread() != 0) return;
    double all_balance = 0, all_choices = 0;
    for (int w = 0; w < num_threads() / kWarp; ++w) {
      all_balance += box.load(w);
      all_choices += box.load(kWarps + w);
    }
    const double tokens = all_choices / static_cast<double>(k);
    add(0, static_cast<double>(rows));
    add(1, box.load(kOthersAt + 1));
    add(2, static_cast<double>(num_experts) * all_balance / tokens);
    add(3, box.load(kOthersAt));
  }

 private:
  // The sums of two columns over all parts, of which kAtOnce are on their way together.
  ATOLL_DEVICE void add_columns(int first, int second, double& of_first, double& of_second) const {
    constexpr int kAtOnce = 8;
    const int end = num_parts;
    of_first = of_second = 0;
    for (int part = 0; part < end; part += kAtOnce) {
      float one[kAtOnce], other[kAtOnce];
      ATOLL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t at = std::int64_t{part + i} * RouterPartials::num_sums(num_experts);
        const bool is_there = part + i < end;
        one[i] = is_there ? partials.load(at + first) : 0.0F;
        other[i] = is_there ? partials.load(at + second) : 0.0F;
      }
      ATOLL_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        of_first += static_cast<double>(one[i]);
        of_second += static_cast<double>(other[i]);
      }
    }
  }
  ATOLL_DEVICE void add(int i, double value) const {
    sums.store(num_experts + i, sums.load(num_experts + i) + value);
  }
};

using RoutingKernels =
    KernelList<RouteTokens, RouteTokensBackward, SumCounts, RouterPartials, AddRouterSums>;

}  // namespace atl::ops::cuda
