#include "atoll/ops/cuda/embedding.h"

#include "atoll/ops/cuda/embedding.cuh"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/cuda/vocabulary_part.h"

namespace atl::ops::cuda {

namespace {

template <typename T, typename Y, bool kAdds>
void forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  using Kernel = EmbeddingForward<T, Y, kAdds>;
  const std::int64_t rows = y.shape().num_rows();
  if (rows == 0) return;
  launch<EmbeddingKernels>(run, warp_a_row(rows, Kernel::kMaxThreads),
                           Kernel{input<std::int32_t>(tokens), input<T>(table), output<Y>(y), rows,
                                  y.dim(-1), y.dim(1)});
}

}  // namespace

Declined embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  if (table.dtype() != y.dtype()) {
    return serve_gpu(run, [&] { forward<Bf16, float, false>(run, tokens, table, y); });
  }
  return serve_gpu_storage(run, y.dtype(),
                           [&]<typename T>(T) { forward<T, T, false>(run, tokens, table, y); });
}

Declined position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y) {
  return serve_gpu_storage(run, y.dtype(),
                           [&]<typename T>(T) { forward<T, T, true>(run, positions, table, y); });
}

Declined embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable) {
  return embedding_part_backward(run, {}, tokens, dy, dtable);
}

Declined embedding_part_backward(Run& run, const VocabularyPart& part, Tensor tokens, Tensor dy,
                                 Tensor dtable) {
  return serve_gpu_storage(run, dy.dtype(), [&]<typename T>(T) {
    using Kernel = EmbeddingBackward<T>;
    const std::int64_t rows = dy.shape().num_rows();
    if (rows == 0) return;
    launch<EmbeddingKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(rows),
         .threads = Kernel::kMaxThreads,
         .shared_bytes = Kernel::shared_bytes()},
        Kernel{input<std::int32_t>(tokens), input<T>(dy), output<float>(dtable), rows, dy.dim(-1),
               dy.dim(1), part.first});
  });
}

}  // namespace atl::ops::cuda
