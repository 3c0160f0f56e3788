#include "atoll/ops/embedding/cuda_vocabulary_part.h"

#include "atoll/ops/cuda/per_step.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/embedding/vocabulary_part_kernels.cuh"

namespace atl::ops::cuda {

namespace {

template <typename Kernel>
void launch_flat(Run& run, std::int64_t elements, int pack, const Kernel& kernel) {
  if (elements == 0) return;
  launch<VocabularyPartKernels>(run, thread_a_pack(elements, pack, Kernel::kMaxThreads), kernel);
}

// A block for each row.
template <typename Kernel>
void launch_rows(Run& run, std::int64_t rows, std::uint32_t shared_bytes, const Kernel& kernel) {
  if (rows == 0) return;
  launch<VocabularyPartKernels>(run,
                                {.blocks_x = static_cast<std::uint32_t>(rows),
                                 .threads = Kernel::kMaxThreads,
                                 .shared_bytes = shared_bytes},
                                kernel);
}

std::int32_t first_of(const VocabularyPart& part) {
  return static_cast<std::int32_t>(part.first);
}
std::int32_t size_of(const VocabularyPart& part) {
  return static_cast<std::int32_t>(part.size);
}

}  // namespace

Declined local_tokens(Run& run, const VocabularyPart& part, Tensor tokens, Tensor local) {
  return serve_gpu(run, [&] {
    launch_flat(run, local.num_elements(), 1,
                LocalTokens{input<std::int32_t>(tokens), output<std::int32_t>(local),
                            first_of(part), size_of(part)});
  });
}

Declined clear_foreign_rows(Run& run, const VocabularyPart& part, Tensor tokens, Tensor y) {
  return serve_gpu_storage(run, y.dtype(), [&]<typename T>(T) {
    with_pack<kPack<T>>(y.dim(-1), {y}, [&]<int V>(std::integral_constant<int, V>) {
      launch_flat(run, y.num_elements(), V,
                  ClearForeignRows<T, V>{input<std::int32_t>(tokens), output<T>(y), y.dim(-1),
                                         first_of(part), size_of(part)});
    });
  });
}

Declined local_positions(Run& run, Tensor positions, std::int64_t rows_per_sequence,
                         std::int64_t first_row, Tensor to) {
  return serve_gpu(run, [&] {
    launch_flat(run, to.num_elements(), 1,
                LocalPositions{input<std::int32_t>(positions), output<std::int32_t>(to),
                               rows_per_sequence, first_row});
  });
}

Declined softmax_part(Run& run, const VocabularyPart& part, Tensor logits, Tensor targets,
                      Tensor statistics) {
  if (logits.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    with_pack<kPack<float>>(part.size, {logits}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = SoftmaxPart<V>;
      launch_rows(run, logits.dim(0), Kernel::shared_bytes(),
                  Kernel{output<float>(logits), input<std::int32_t>(targets),
                         output<double>(statistics), part.size, first_of(part)});
    });
  });
}

Declined cross_entropy_part(Run& run, const VocabularyPart& part, int index, double factor,
                            Tensor statistics, Tensor targets, Tensor exps, Tensor loss,
                            bool gradient) {
  if (exps.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    with_pack<kPack<float>>(part.size, {exps}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = CrossEntropyPart<V>;
      launch_rows(
          run, exps.dim(0), 0,
          Kernel{.statistics = input<double>(statistics),
                 .targets = input<std::int32_t>(targets),
                 .exps = output<float>(exps),
                 .loss = output<float>(loss),
                 .size = part.size,
                 .rows = exps.dim(0),
                 .first = first_of(part),
                 .num_parts = static_cast<std::int32_t>(statistics.dim(0)),
                 .index = index,
                 .grad_scale = per_step(run,
                                        [factor](const Run& now) {
                                          return static_cast<float>(factor * now.loss_scale);
                                        }),
                 .with_gradient = gradient});
    });
  });
}

}  // namespace atl::ops::cuda
