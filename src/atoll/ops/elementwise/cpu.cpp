#include "atoll/ops/elementwise/cpu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/simd/convert.h"

// clang-format off
#include "atoll/simd/highway_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/elementwise/cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "atoll/ops/cpu/lanes-inl.h"
#include "atoll/ops/cpu/philox-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void add_span(const T* a, const T* b, std::size_t n, T* y) {
  for_lanes(n, [&](std::size_t i, auto lanes)
                   HWY_ATTR { lanes.store(hn::Add(lanes.load(a + i), lanes.load(b + i)), y + i); });
}

// Elements [begin, end).
void Add(const Tensor& a, const Tensor& b, const Tensor& y, std::int64_t begin, std::int64_t end) {
  with_storage(y.dtype(), [&]<typename T>(T) HWY_ATTR {
    add_span(a.data<T>() + begin, b.data<T>() + begin, static_cast<std::size_t>(end - begin),
             y.data<T>() + begin);
  });
}

template <class T>
void scale_span(float factor, const T* x, std::size_t n, T* y) {
  const Vf size = hn::Set(F32(), factor);
  for_lanes(n, [&](std::size_t i, auto lanes)
                   HWY_ATTR { lanes.store(hn::Mul(lanes.load(x + i), size), y + i); });
}

// Elements [begin, end).
void Scale(float factor, const Tensor& x, const Tensor& y, std::int64_t begin, std::int64_t end) {
  with_storage(y.dtype(), [&]<typename T>(T) HWY_ATTR {
    scale_span(factor, x.data<T>() + begin, static_cast<std::size_t>(end - begin),
               y.data<T>() + begin);
  });
}

// y = x * scale where the element's 24-bit draw is at least `threshold`, else 0. Elements
// [first, first + n) of a sample; first is a multiple of the words one round of Philox gives.
template <class T>
void dropout_span(const std::uint32_t* key, const std::uint32_t* salt, std::uint32_t threshold,
                  float scale, std::size_t first, std::size_t n, const T* x, T* y) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::RebindToSigned<F32> di;
  const auto last_dropped = hn::Set(di, static_cast<std::int32_t>(threshold) - 1);
  const Vf factor = hn::Set(d, scale);
  const std::size_t batch = 4 * hn::Lanes(U64());
  HWY_ALIGN std::uint32_t words[4 * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  for (std::size_t at = 0; at < n; at += batch) {
    PhiloxBlocks(key, salt, (first + at) / 4, words);
    for_lanes(std::min(batch, n - at), [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto draw = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, words + i)));
      const auto keep = hn::RebindMask(d, hn::Gt(draw, last_dropped));
      const Vf kept = hn::Mul(lanes.load(x + at + i), factor);
      lanes.store(hn::IfThenElseZero(keep, kept), y + at + i);
    });
  }
}

// x and y: elements from `first` of a sample that begins at `sample_begin`.
void Dropout(const std::uint32_t* key, const std::uint32_t* salt, std::uint32_t threshold,
             float scale, std::int64_t sample_begin, std::size_t first, std::size_t n,
             const Tensor& x, const Tensor& y) {
  const auto offset = sample_begin + static_cast<std::int64_t>(first);
  with_storage(x.dtype(), [&]<typename T>(T) HWY_ATTR {
    dropout_span(key, salt, threshold, scale, first, n, x.data<T>() + offset, y.data<T>() + offset);
  });
}

double SumOfSquares(const float* x, std::size_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  const std::size_t width = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  // Far enough ahead to go past the end of a page, where the hardware's prefetching stops.
  constexpr std::size_t kAhead = 512;
  std::size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    hwy::Prefetch(x + i + kAhead);
    const auto a = hn::PromoteTo(d, hn::LoadU(half, x + i));
    const auto b = hn::PromoteTo(d, hn::LoadU(half, x + i + width));
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops::cpu {

namespace {

HWY_EXPORT(Add);
HWY_EXPORT(Scale);
HWY_EXPORT(Dropout);
HWY_EXPORT(SumOfSquares);

// A multiple of every vector's elements and of what one round of Philox gives on it.
constexpr std::int64_t kElementsPerTask = 16384;
// Partial sums live on the stack: their number is bounded, so their size grows with the tensor.
constexpr std::int64_t kMaxPartials = 1024;

}  // namespace

void add(Run& run, Tensor a, Tensor b, Tensor y) {
  run.threads().run_chunked(y.num_elements(), kElementsPerTask,
                            [&](std::int64_t begin, std::int64_t end) {
                              HWY_DYNAMIC_DISPATCH(Add)(a, b, y, begin, end);
                            });
}

void scale(Run& run, double factor, Tensor x, Tensor y) {
  run.threads().run_chunked(
      y.num_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(Scale)(static_cast<float>(factor), x, y, begin, end);
      });
}

void convert(Run& run, Tensor x, Tensor y) {
  run.threads().run_chunked(
      y.num_elements(), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
        const auto n = static_cast<std::size_t>(end - begin);
        if (x.dtype() == Dtype::kBf16) {
          simd::widen_rows(1, n, {x.data<Bf16>() + begin, n}, {y.data<float>() + begin, n});
        } else {
          simd::narrow_rows(1, n, {x.data<float>() + begin, n}, {y.data<Bf16>() + begin, n});
        }
      });
}

void dropout(Run& run, double p, std::int64_t layer, Tensor x, Tensor y, RowPart part) {
  const std::int64_t width = x.dim(2);
  const std::int64_t num_rows = part.count * x.dim(1);  // of a sample
  const std::int64_t size = num_rows * width;
  const auto stretches = part.tokens.stretches(part.tokens.num_ranks * num_rows);
  // The elements of the batch that are here: [here, here_end).
  const std::int64_t here = part.index * x.num_elements();
  const std::int64_t here_end = here + x.num_elements();
  const std::int64_t tasks_per_sample = (size + kElementsPerTask - 1) / kElementsPerTask;
  // draw * 2^-24 >= p for an integer draw is draw >= ceil(p * 2^24), exactly.
  const auto threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  const auto scale = static_cast<float>(1 / (1 - p));
  run.threads().run(x.dim(0) * tasks_per_sample, [&](std::int64_t task) {
    const std::int64_t sample = task / tasks_per_sample;
    const std::int64_t at = task % tasks_per_sample * kElementsPerTask;
    const std::int64_t begin = std::max(at, here - sample * size);
    const std::int64_t end = std::min({at + kElementsPerTask, size, here_end - sample * size});
    const RngStream stream = dropout_stream(run.seed, layer, run.step, run.first_sample + sample);
    std::int64_t row = 0;  // the stretch's first
    for (int s = 0; s < part.tokens.num_stretches(); ++s) {
      const TokenStretch& stretch = stretches[static_cast<std::size_t>(s)];
      const std::int64_t first = std::max(begin, row * width);
      const std::int64_t n = std::min(end, (row + stretch.count) * width) - first;
      // From an element of this rank's rows of the sample to that of the sample.
      const std::int64_t shift = (stretch.first - row) * width;
      row += stretch.count;
      if (n <= 0) continue;
      HWY_DYNAMIC_DISPATCH(Dropout)
      (stream.key().data(), stream.salt().data(), threshold, scale, sample * size - here - shift,
       static_cast<std::size_t>(first + shift), static_cast<std::size_t>(n), x, y);
    }
  });
}

double sum_of_squares(Run& run, Tensor x) {
  const std::int64_t n = x.num_elements();
  const std::int64_t even_share = (n + kMaxPartials - 1) / kMaxPartials;
  const std::int64_t tasks = (even_share + kElementsPerTask - 1) / kElementsPerTask;
  const std::int64_t grain = std::max<std::int64_t>(1, tasks) * kElementsPerTask;
  std::array<double, kMaxPartials> partials;
  run.threads().run_chunked(n, grain, [&](std::int64_t begin, std::int64_t end) {
    partials[static_cast<std::size_t>(begin / grain)] = HWY_DYNAMIC_DISPATCH(SumOfSquares)(
        x.data<float>() + begin, static_cast<std::size_t>(end - begin));
  });
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += grain) {
    sum += partials[static_cast<std::size_t>(begin / grain)];
  }
  return sum;
}

void sums_of_squares(Run& run, Tensor x, std::span<const Block> blocks, std::span<double> sums) {
  run.threads().run(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t task) {
    const auto i = static_cast<std::size_t>(task);
    sums[i] = HWY_DYNAMIC_DISPATCH(SumOfSquares)(x.data<float>() + blocks[i].begin,
                                                 static_cast<std::size_t>(blocks[i].count));
  });
}

}  // namespace atl::ops::cpu
#endif  // HWY_ONCE
