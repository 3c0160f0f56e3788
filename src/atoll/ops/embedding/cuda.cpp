#include "atoll/ops/embedding/cuda.h"

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/embedding/cuda_vocabulary_part.h"
#include "atoll/ops/embedding/kernels.cuh"

namespace atl::ops::cuda {

namespace {

template <typename T, typename Y, bool kAdds>
void forward(Run& run, Tensor tokens, Tensor table, Tensor y) {
  if (y.num_elements() == 0) return;
  with_pack<kPack<Y>>(y.dim(-1), {table, y}, [&]<int V>(std::integral_constant<int, V>) {
    using Kernel = EmbeddingForward<T, Y, kAdds, V>;
    launch<EmbeddingKernels>(
        run, thread_a_pack(y.num_elements(), V, Kernel::kMaxThreads),
        Kernel{input<std::int32_t>(tokens), input<T>(table), output<Y>(y), y.dim(-1), y.dim(1)});
  });
}

// The order of rows by their token, of which there are `limit`, in the run's scratch.
Tensor sort_tokens(Run& run, Tensor tokens, std::int64_t limit) {
  const std::int64_t rows = tokens.num_elements();
  const Spec spec = {Dtype::kI32, {rows}};
  const Tensor order = run.take_scratch(spec), other = run.take_scratch(spec);
  int passes = 1;
  while (limit > std::int64_t{1} << (passes * SortTokens::kBits)) ++passes;
  // Parts of at least 128 rows.
  const auto threads = static_cast<int>(
      std::min<std::int64_t>(SortTokens::kMaxThreads, num_blocks(rows, 4 * kWarp) * kWarp));
  launch<EmbeddingKernels>(
      run,
      {.blocks_x = 1,
       .threads = static_cast<std::uint32_t>(threads),
       .shared_bytes = static_cast<std::uint32_t>(SortTokens::shared_bytes(threads))},
      SortTokens{input<std::int32_t>(tokens), output<std::int32_t>(order),
                 output<std::int32_t>(other), passes});
  return order;
}

template <typename T, int V>
void add_by_token(Run& run, Tensor tokens, std::int64_t limit, std::int64_t first, Tensor dy,
                  Tensor dtable) {
  using Kernel = EmbeddingBackward<T, V>;
  Run inner = run;
  const Tensor order = sort_tokens(inner, tokens, limit);
  const std::int64_t width = dy.dim(-1);
  launch<EmbeddingKernels>(
      run,
      {.blocks_x = static_cast<std::uint32_t>(tokens.num_elements()),
       .blocks_y = static_cast<std::uint32_t>(num_blocks(width, Kernel::kMaxThreads * V)),
       .threads = Kernel::kMaxThreads},
      Kernel{input<std::int32_t>(tokens), input<std::int32_t>(order), input<T>(dy),
             output<float>(dtable), width, first});
}

template <typename T, int V>
void add_by_place(Run& run, Tensor dy, Tensor dtable) {
  using Kernel = PlaceEmbeddingBackward<T, V>;
  const std::int64_t size = dy.dim(1) * dy.dim(2);
  launch<EmbeddingKernels>(run, thread_a_pack(size, V, Kernel::kMaxThreads),
                           Kernel{input<T>(dy), output<float>(dtable), size});
}

Declined add_rows(Run& run, Tensor tokens, std::int64_t limit, std::int64_t first, Tensor dy,
                  Tensor dtable) {
  return serve_gpu_storage(run, dy.dtype(), [&]<typename T>(T) {
    if (dy.num_elements() == 0) return;
    with_pack<4>(dy.dim(-1), {dy, dtable}, [&]<int V>(std::integral_constant<int, V>) {
      if (tokens.defined()) {
        add_by_token<T, V>(run, tokens, limit, first, dy, dtable);
      } else {
        add_by_place<T, V>(run, dy, dtable);
      }
    });
  });
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
  return add_rows(run, tokens, dtable.dim(0), 0, dy, dtable);
}

Declined embedding_part_backward(Run& run, const VocabularyPart& part, Tensor tokens, Tensor dy,
                                 Tensor dtable) {
  return add_rows(run, tokens, part.total, part.first, dy, dtable);
}

}  // namespace atl::ops::cuda
