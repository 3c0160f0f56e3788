#include "atoll/ops/cross_entropy/cuda.h"

#include "atoll/ops/cross_entropy/kernels.cuh"
#include "atoll/ops/cuda/per_step.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops::cuda {

namespace {

template <typename T>
void run_chunk(Run& run, const CrossEntropyArgs& args, Tensor logits, std::int64_t begin) {
  const std::int64_t rows = logits.dim(0);
  const Tensor x = args.x.rows(begin, begin + rows);
  ops::matmul(run, Transpose::kNT, x, args.weight, logits);
  const Tensor loss = args.loss.rows(begin, begin + rows);
  with_pack<kPack<T>>(args.vocab, {logits}, [&]<int V>(std::integral_constant<int, V>) {
    using Kernel = CrossEntropy<T, V>;
    const int kept = args.wants_gradients() ? Kernel::most_kept(args.vocab) : 0;
    launch<CrossEntropyKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(rows),
         .threads = Kernel::kMaxThreads,
         .shared_bytes = static_cast<std::uint32_t>(Kernel::shared_bytes_of(kept))},
        Kernel{output<T>(logits),
               {args.targets + begin, rows},
               output<float>(loss),
               args.vocab,
               kept,
               per_step(run,
                        [factor = args.factor](const Run& now) {
                          return static_cast<float>(factor * now.loss_scale);
                        }),
               args.wants_gradients()});
  });
  if (!args.wants_gradients()) return;
  ops::matmul(run, Transpose::kNN, logits, args.weight, args.dx.rows(begin, begin + rows));
  if (args.wants_dweight()) {
    ops::matmul(run, Transpose::kTN, logits, x, args.dweight, {}, /*accumulate=*/true);
  }
}

}  // namespace

std::int64_t logits_chunk_rows(std::int64_t row_bytes, std::int64_t rows) {
  constexpr std::int64_t kMostBytes = std::int64_t{4} << 30;
  constexpr std::int64_t kFewestRows = 4096;
  const std::int64_t most = std::max(kFewestRows, kMostBytes / row_bytes);
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  return (rows + chunks - 1) / chunks;
}

std::int64_t cross_entropy_chunk_rows(Dtype dtype, std::int64_t rows, std::int64_t vocab) {
  const Spec row = {dtype, {std::max<std::int64_t>(vocab, 1)}};
  return logits_chunk_rows(static_cast<std::int64_t>(row.bytes()), rows);
}

std::size_t cross_entropy_scratch_bytes(Dtype dtype, std::int64_t rows, std::int64_t vocab) {
  return align_up(Spec{dtype, {cross_entropy_chunk_rows(dtype, rows, vocab), vocab}}.bytes());
}

Declined cross_entropy(Run& run, const CrossEntropyArgs& args) {
  return serve_gpu_storage(run, args.x.dtype(), [&]<typename T>(T) {
    const auto row_bytes = static_cast<std::size_t>(args.vocab) * sizeof(T);
    const auto fit = static_cast<std::int64_t>(run.scratch.size() / row_bytes);
    const std::int64_t chunk =
        std::min(cuda::cross_entropy_chunk_rows(dtype_of<T>(), args.rows, args.vocab), fit);
    ATOLL_CHECK(chunk > 0, "{} bytes of scratch for rows of {} logits", run.scratch.size(),
                args.vocab);
    for (std::int64_t begin = 0; begin < args.rows; begin += chunk) {
      Run inner = run;
      const std::int64_t rows = std::min(chunk, args.rows - begin);
      const Tensor logits = inner.take_scratch({dtype_of<T>(), {rows, args.vocab}});
      run_chunk<T>(inner, args, logits, begin);
    }
  });
}

}  // namespace atl::ops::cuda
