#pragma once

// Elementwise ops, V elements at a time, and sums of squares.

#include "atoll/ops/cuda/kernel_list.h"
#include "atoll/ops/cuda/numbers.h"
#include "atoll/ops/cuda/per_step.cuh"

namespace atl::ops::cuda {

/// y = a + b; y may be a or b. b may be shorter: then it is a row that is added to each.
template <typename T, int V>
struct Add {
  static constexpr const char* kName = "add";
  static constexpr int kMaxThreads = 256;
  Global<const T> a;
  Global<const T> b;
  Global<T> y;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const auto left = a.template load<V>(i);
    const auto right = b.template load<V>(b.size == y.size ? i : i % b.size);
    Pack<T, V> sum;
    for (int k = 0; k < V; ++k) sum[k] = narrowed<T>(widened(left[k]) + widened(right[k]));
    y.template store<V>(i, sum);
  }
};

/// y = factor x; y may be x.
template <typename T, int V>
struct Scale {
  static constexpr const char* kName = "scale";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;
  Global<T> y;
  float factor;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const auto from = x.template load<V>(i);
    Pack<T, V> to;
    for (int k = 0; k < V; ++k) to[k] = narrowed<T>(factor * widened(from[k]));
    y.template store<V>(i, to);
  }
};

/// y = x in another type.
template <typename From, typename To, int V>
struct Convert {
  static constexpr const char* kName = "convert";
  static constexpr int kMaxThreads = 256;
  Global<const From> x;
  Global<To> y;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= y.size) return;
    const auto from = x.template load<V>(i);
    Pack<To, V> to;
    for (int k = 0; k < V; ++k) {
      // A NaN keeps what it has, as on the host.
      if constexpr (std::is_same_v<To, Bf16>)
        to[k] = to_bf16(widened(from[k]));
      else
        to[k] = widened(from[k]);
    }
    y.template store<V>(i, to);
  }
};

/// The draws of one layer, step and micro-batch, as dropout_stream() has them.
struct DropoutDraws {
  StreamFamily family;
  std::uint64_t first_sample;  // of the micro-batch
  std::uint64_t unused;        // to 32 bytes, which memory of the device is read by

  ATOLL_DEVICE Draws of(std::int64_t sample) const {
    return family.stream(first_sample + static_cast<std::uint64_t>(sample));
  }
};

/// y = x / (1 - p) where the element's draw is at least p, else 0; y may be x. A row of blocks for
/// each sample.
template <typename T>
struct Dropout {
  static constexpr const char* kName = "dropout";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;  // (samples, size)
  Global<T> y;
  std::int64_t size;
  PerStep<DropoutDraws> draws;
  float p;
  float scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t first = (std::int64_t{block_x()} * num_threads() + thread()) * 4;
    const auto words = draws.get().of(block_y()).block(static_cast<std::uint64_t>(first) / 4);
    const std::int64_t sample = block_y() * size;
    for (int k = 0; k < 4 && first + k < size; ++k) {
      const float value = widened(x.load(sample + first + k)) * scale;
      const bool keep = to_uniform(words[static_cast<std::size_t>(k)]) >= p;
      y.store(sample + first + k, narrowed<T>(keep ? value : 0.0F));
    }
  }
};

/// Dropout of part of a batch's rows, V elements at a time: 4 where no random block is shared by
/// rows, or 1. See RowPart; the tokens of the rows of a sample are two stretches.
template <typename T, int V>
struct DropoutPart {
  static constexpr const char* kName = "dropout_part";
  static constexpr int kMaxThreads = 256;
  Global<const T> x;
  Global<T> y;
  std::int64_t here;      // which element of the batch's the first of x is
  std::int64_t width;     // of a row
  std::int64_t num_rows;  // of a sample
  std::int64_t stretch;   // rows of a stretch
  std::int64_t first_token, other_first_token;
  PerStep<DropoutDraws> draws;
  float p;
  float scale;

  ATOLL_DEVICE void operator()() const {
    const std::int64_t i = (std::int64_t{block_x()} * num_threads() + thread()) * V;
    if (i >= x.size) return;
    const std::int64_t row = (here + i) / width, column = (here + i) % width;
    const std::int64_t r = row % num_rows;
    const std::int64_t token = r < stretch ? first_token + r : other_first_token + (r - stretch);
    const auto element = static_cast<std::uint64_t>(token * width + column);
    const auto words = draws.get().of(row / num_rows).block(element / 4);
    const auto from = x.template load<V>(i);
    Pack<T, V> to;
    for (int k = 0; k < V; ++k) {
      const std::uint32_t word = pick(words, V == 4 ? k : static_cast<int>(element % 4));
      to[k] = narrowed<T>(to_uniform(word) >= p ? widened(from[k]) * scale : 0.0F);
    }
    y.template store<V>(i, to);
  }
};

/// partials[block] = the sum of squares of the block's elements, kElements at most, in double.
/// Without `stretches` the blocks of threads have kElements each, one behind the other.
struct SquarePartials {
  static constexpr const char* kName = "square_partials";
  static constexpr int kMaxThreads = 256;
  static constexpr std::int64_t kElements = std::int64_t{1} << 16;
  Global<const float> x;
  Global<double> partials;
  Global<const std::int64_t> stretches;  // (blocks, 2): the first element, and how many

  ATOLL_DEVICE void operator()() const {
    std::int64_t begin = block_x() * kElements;
    std::int64_t end = begin + kElements < x.size ? begin + kElements : x.size;
    if (stretches.size > 0) {
      const auto stretch = stretches.template load<2>(2 * std::int64_t{block_x()});
      begin = stretch[0];
      end = begin + stretch[1];
    }
    double sum = 0;
    for (std::int64_t i = begin + thread(); i < end; i += num_threads()) {
      const double value = x.load(i);
      sum += value * value;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    const Shared<double> sums = shared_memory<double>(0, kMaxThreads / kWarp);
    if (lane() == 0) sums.store(warp(), sum);
    sync_block();
    if (thread() != 0) return;
    double total = 0;
    for (int w = 0; w < num_threads() / kWarp; ++w) total += sums.load(w);
    partials.store(block_x(), total);
  }
};

using ElementwiseKernels =
    KernelList<Add<float, 1>, Add<float, 4>, Add<Bf16, 1>, Add<Bf16, 8>, Scale<float, 1>,
               Scale<float, 4>, Scale<Bf16, 1>, Scale<Bf16, 8>, Convert<float, Bf16, 1>,
               Convert<float, Bf16, 4>, Convert<Bf16, float, 1>, Convert<Bf16, float, 4>,
               Dropout<float>, Dropout<Bf16>, DropoutPart<float, 1>, DropoutPart<float, 4>,
               DropoutPart<Bf16, 1>, DropoutPart<Bf16, 4>, SquarePartials>;

}  // namespace atl::ops::cuda
