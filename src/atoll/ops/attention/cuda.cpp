#include "atoll/ops/attention/cuda.h"

#include "atoll/ops/attention/cuda_views.h"
#include "atoll/ops/attention/kernels.cuh"

namespace atl::ops::cuda {

namespace {

template <typename Kernel>
void launch_rows(Run& run, std::int64_t rows, const Kernel& kernel) {
  if (rows > 0) launch<AttentionKernels>(run, warp_a_row(rows, Kernel::kMaxThreads), kernel);
}

std::int64_t num_queries(const HeadLayout& heads, const Tensor& qkv) {
  return qkv.dim(0) * qkv.dim(1) * heads.num_heads;
}

}  // namespace

Declined attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                           const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  if (heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const QkvViews<const T> from(qkv, heads);
    const std::int64_t rows = num_queries(heads, qkv);
    launch_rows(run, rows,
                AttentionForward<T>{from.queries, from.keys, from.values, heads_of<T>(out, heads),
                                    output<float>(lse), setup_of(heads, scores, mask, qkv), rows});
  });
}

Declined attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                            const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                            Tensor dout, Tensor dqkv) {
  if (heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const AttentionSetup setup = setup_of(heads, scores, mask, qkv);
    const QkvViews<const T> from(qkv, heads);
    const QkvViews<T> to(dqkv, heads);
    const auto attended = heads_of<const T>(out, heads), grads = heads_of<const T>(dout, heads);
    launch_rows(
        run, num_queries(heads, qkv),
        AttentionBackwardQuery<T>{from.queries, from.keys, from.values, attended, grads,
                                  input<float>(lse), to.queries, setup, num_queries(heads, qkv)});
    const std::int64_t keys = qkv.dim(0) * heads.num_kv_heads * qkv.dim(1);
    launch_rows(run, keys,
                AttentionBackwardKey<T>{from.queries, from.keys, from.values, attended, grads,
                                        input<float>(lse), to.keys, to.values, setup, keys});
  });
}

Declined attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                          std::int64_t window, std::int64_t key_offset, Tensor qkv, Tensor k_cache,
                          Tensor v_cache, Tensor out) {
  if (heads.head_dim > AttentionSetup::kMaxHeadDim) return "head_dim above 256";
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const std::int64_t rows = num_queries(heads, qkv);
    launch_rows(run, rows,
                AttentionForward<T>{heads_of<const T>(qkv, heads),
                                    heads_of<const T>(k_cache, heads),
                                    heads_of<const T>(v_cache, heads),
                                    heads_of<T>(out, heads),
                                    {},
                                    setup_of(heads, scores, {.window = window}, qkv, key_offset),
                                    rows});
  });
}

Declined store_keys(Run& run, const HeadLayout& heads, std::int64_t key_offset, Tensor qkv,
                    Tensor k_cache, Tensor v_cache) {
  return serve_gpu_storage(run, qkv.dtype(), [&]<typename T>(T) {
    const std::int64_t size = qkv.dim(0) * qkv.dim(1) * heads.kv_width();
    if (size == 0) return;
    const QkvViews<const T> from(qkv, heads);
    // Keys begin behind the queries of a row, so both widths count.
    const bool begins_aligned = heads.query_width() % kPack<T> == 0;
    with_pack<kPack<T>>(begins_aligned ? heads.kv_width() : 1, {qkv, k_cache, v_cache},
                        [&]<int V>(std::integral_constant<int, V>) {
                          using Kernel = StoreKeys<T, V>;
                          launch<AttentionKernels>(
                              run, thread_a_pack(size, V, Kernel::kMaxThreads),
                              Kernel{from.keys, from.values, heads_of<T>(k_cache, heads),
                                     heads_of<T>(v_cache, heads), qkv.dim(1), key_offset,
                                     static_cast<int>(heads.kv_width()), size});
                        });
  });
}

}  // namespace atl::ops::cuda
