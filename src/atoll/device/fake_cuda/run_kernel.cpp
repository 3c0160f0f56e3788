#include "atoll/device/fake_cuda/run_kernel.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/rng.h"

namespace atl::fake_cuda {

namespace {

// What an H100 gives a block at most (CUDA programming guide, table of compute capabilities).
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxShared = 227 << 10;
constexpr std::uint32_t kMaxBlocksY = 65535;

std::vector<std::int64_t> order_of_blocks(std::int64_t count, Order order) {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(count));
  std::iota(blocks.begin(), blocks.end(), std::int64_t{0});
  if (order.seed == 1) std::reverse(blocks.begin(), blocks.end());
  if (order.seed < 2) return blocks;
  const RngStream stream(order.seed, RngPurpose::kShuffle);
  for (std::size_t i = blocks.size(); i > 1; --i)
    std::swap(blocks[i - 1], blocks[stream.word(i) % i]);
  return blocks;
}

// Fibers and shared memory of each thread of the host, kept from kernel to kernel.
Block& block_of_this_thread() {
  thread_local Block block;
  return block;
}

}  // namespace

void check_launch(const cuda::KernelCode& code, const cuda::LaunchShape& shape) {
  ATOLL_CHECK(shape.threads >= kWarp && shape.threads <= kMaxThreads &&
                  shape.threads % kWarp == 0 && shape.shared_bytes <= kMaxShared &&
                  shape.blocks_x >= 1 && shape.blocks_x <= INT32_MAX && shape.blocks_y >= 1 &&
                  shape.blocks_y <= kMaxBlocksY,
              "kernel {}: {} x {} blocks of {} threads and {} bytes of shared memory", code.name,
              shape.blocks_x, shape.blocks_y, shape.threads, shape.shared_bytes);
}

Traffic run_kernel(ThreadPool& threads, const cuda::KernelCode& code,
                   const cuda::LaunchShape& shape, const void* operands, Order order,
                   Checks checks) {
  check_launch(code, shape);
  const std::int64_t count = std::int64_t{shape.blocks_x} * shape.blocks_y;
  const std::vector<std::int64_t> blocks = order_of_blocks(count, order);
  arrive_at(operands);
  std::mutex mutex;
  Traffic total;
  // A task takes several blocks, so that a launch of many small ones is not all bookkeeping.
  const std::int64_t grain = std::max<std::int64_t>(1, count / (8 * threads.num_threads()));
  threads.run_chunked(count, grain, [&](std::int64_t begin, std::int64_t end) {
    Block& block = block_of_this_thread();
    Traffic moved;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t number = blocks[static_cast<std::size_t>(i)];
      block.run(code, shape, operands, static_cast<std::uint32_t>(number % shape.blocks_x),
                static_cast<std::uint32_t>(number / shape.blocks_x), order, checks);
      moved += block.traffic();
    }
    const std::lock_guard lock(mutex);
    total += moved;
  });
  return total;
}

}  // namespace atl::fake_cuda
