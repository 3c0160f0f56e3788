#include "atoll/ops/copy_blocks/cuda.h"

#include <numeric>

#include "atoll/ops/copy_blocks/kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

// The largest power of two, up to 16, that divides all places and lengths in bytes.
std::int64_t common_bytes(const std::initializer_list<std::int64_t>& bytes) {
  std::int64_t common = 16;
  for (const std::int64_t each : bytes) common = std::gcd(common, each);
  return common;
}

}  // namespace

Declined copy_blocks(Run& run, std::array<std::int64_t, 2> counts, std::int64_t length, Tensor x,
                     const BlockPlaces& from, Tensor y, const BlockPlaces& to) {
  return serve_gpu(run, [&] {
    const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
    const std::int64_t together = common_bytes(
        {length * size, from.offset * size, from.outer * size, from.inner * size, to.offset * size,
         to.outer * size, to.inner * size, reinterpret_cast<std::intptr_t>(x.raw()),
         reinterpret_cast<std::intptr_t>(y.raw())});
    const auto launch_words = [&]<typename Word, int V>(Word, std::integral_constant<int, V>) {
      constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Word));
      using Kernel = CopyWords<Word, V>;
      const auto start = [&](const BlockPlaces& at) {
        return BlockStart{at.offset * size / kBytes, at.outer * size / kBytes,
                          at.inner * size / kBytes};
      };
      const std::int64_t words = length * size / kBytes, all = counts[0] * counts[1] * words;
      const auto count = [&](const Tensor& tensor) {
        return static_cast<std::int64_t>(tensor.bytes()) / kBytes;
      };
      launch<CopyBlocksKernels>(run, thread_a_pack(all, V, Kernel::kMaxThreads),
                                Kernel{{static_cast<const Word*>(x.raw()), count(x)},
                                       {static_cast<Word*>(y.raw()), count(y)},
                                       start(from),
                                       start(to),
                                       counts[1],
                                       words,
                                       all});
    };
    using One = std::integral_constant<int, 1>;
    if (together >= 16) return launch_words(std::uint32_t{}, std::integral_constant<int, 4>{});
    if (together >= 4) return launch_words(std::uint32_t{}, One{});
    if (together >= 2) return launch_words(std::uint16_t{}, One{});
    launch_words(std::uint8_t{}, One{});
  });
}

}  // namespace atl::ops::cuda
