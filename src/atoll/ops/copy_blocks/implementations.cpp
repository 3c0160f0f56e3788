#include "atoll/ops/copy_blocks/copy_blocks.h"

#include <algorithm>
#include <cstring>

#include "atoll/ops/copy_blocks/cuda.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct CopyBlocks {
  std::array<std::int64_t, 2> counts;
  std::int64_t length;
  Tensor x;
  BlockPlaces from;
  Tensor y;
  BlockPlaces to;
};

// Bytes in one task.
constexpr std::int64_t kBytesPerTask = 1 << 18;

void copy_on_host(Run& run, const CopyBlocks& a) {
  const auto size = static_cast<std::int64_t>(dtype_size(a.x.dtype()));
  const std::int64_t bytes = a.length * size;
  const std::int64_t grain = std::max<std::int64_t>(1, kBytesPerTask / bytes);
  const auto* from = static_cast<const std::byte*>(a.x.raw());
  auto* to = static_cast<std::byte*>(a.y.raw());
  run.threads().run_chunked(
      a.counts[0] * a.counts[1], grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) {
          const std::int64_t i = block / a.counts[1], j = block % a.counts[1];
          const auto place = [&](const BlockPlaces& at) {
            return (at.offset + i * at.outer + j * at.inner) * size;
          };
          std::memcpy(to + place(a.to), from + place(a.from), static_cast<std::size_t>(bytes));
        }
      });
}

// Copies move bytes, so each implementation serves every dtype.
constexpr Implementation<CopyBlocks> kCopyBlocks[] = {
    {"cpu",
     [](Run& run, const CopyBlocks& a) { return serve_host(run, [&] { copy_on_host(run, a); }); }},
    {"cuda",
     [](Run& run, const CopyBlocks& a) {
       return cuda::copy_blocks(run, a.counts, a.length, a.x, a.from, a.y, a.to);
     }},
};

void check_places(const CopyBlocks& a, const Tensor& tensor, const BlockPlaces& at) {
  const std::int64_t last = at.offset + (a.counts[0] - 1) * at.outer + (a.counts[1] - 1) * at.inner;
  ATOLL_CHECK(
      at.offset >= 0 && at.outer >= 0 && at.inner >= 0 && last + a.length <= tensor.num_elements(),
      "copy_blocks: {} x {} blocks of {} from element {} on do not lie in {}", a.counts[0],
      a.counts[1], a.length, at.offset, tensor.spec().to_string());
}

}  // namespace

void copy_blocks(Run& run, std::array<std::int64_t, 2> counts, std::int64_t length, Tensor x,
                 BlockPlaces from, Tensor y, BlockPlaces to) {
  if (counts[0] == 0 || counts[1] == 0 || length == 0) return;
  ATOLL_CHECK(x.dtype() == y.dtype() && length > 0 && counts[0] > 0 && counts[1] > 0,
              "copy_blocks: {} to {}", x.spec().to_string(), y.spec().to_string());
  const CopyBlocks args = {counts, length, x, from, y, to};
  check_places(args, x, from);
  check_places(args, y, to);
  OpCost cost;
  cost.bytes = 2.0 * static_cast<double>(counts[0] * counts[1] * length) *
               static_cast<double>(dtype_size(x.dtype()));
  dispatch<CopyBlocks>("copy_blocks", kCopyBlocks, run, args, cost);
}

}  // namespace atl::ops
