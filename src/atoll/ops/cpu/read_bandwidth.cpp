#include "atoll/ops/read_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/read_bandwidth.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h comes first, so that what follows is compiled once per instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The exclusive or of all of [data, data + count): cheaper than any sum, so that only reading
/// costs.
std::uint32_t ReadAll(const std::uint32_t* data, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t width = hn::Lanes(d);
  V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (std::size_t i = 0; i + 4 * width <= count; i += 4 * width) {
    HWY_UNROLL(4)
    for (std::size_t s = 0; s < 4; ++s) {
      sum[s] = hn::Xor(sum[s], hn::LoadU(d, data + i + s * width));
    }
  }
  const V all = hn::Xor(hn::Xor(sum[0], sum[1]), hn::Xor(sum[2], sum[3]));
  return hn::GetLane(all);
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atl::ops {

namespace cpu {
HWY_EXPORT(ReadAll);

// Here and not where it is called: with a single instruction set Highway takes no qualified name.
std::uint32_t read_all(const std::uint32_t* data, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(ReadAll)(data, count);
}
}  // namespace cpu

double measure_read_bandwidth(Run& run, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes a task
  constexpr double kSeconds = 0.2;
  const std::size_t pieces = std::max<std::size_t>(bytes / kPiece, 1);
  const Buffer buffer(run.stream->device(), pieces * kPiece);
  auto* words = static_cast<std::uint32_t*>(buffer.data());
  constexpr std::size_t kWords = kPiece / sizeof(*words);
  // Pages that were never written are all one page of zeros.
  run.threads().run(static_cast<std::int64_t>(pieces), [&](std::int64_t i) {
    std::fill_n(words + static_cast<std::size_t>(i) * kWords, kWords, 1U);
  });
  std::vector<double> seconds;
  double total = 0;
  std::vector<std::uint32_t> sums(pieces);
  while (total < kSeconds) {
    const auto start = std::chrono::steady_clock::now();
    run.threads().run(static_cast<std::int64_t>(pieces), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      sums[at] = cpu::read_all(words + at * kWords, kWords);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds.push_back(taken.count());
    total += taken.count();
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(pieces * kPiece) / seconds[seconds.size() / 2];
}

}  // namespace atl::ops
#endif  // HWY_ONCE
