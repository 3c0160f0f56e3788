#include "atoll/ops/attention/attention.h"

#include <algorithm>
#include <cstring>

#include "atoll/ops/attention/attention_sinks.h"
#include "atoll/ops/attention/checks.h"
#include "atoll/ops/attention/cpu.h"
#include "atoll/ops/attention/cpu_amx.h"
#include "atoll/ops/attention/cpu_paged.h"
#include "atoll/ops/attention/cuda.h"
#include "atoll/ops/attention/cuda_cudnn.h"
#include "atoll/ops/attention/ref.h"
#include "atoll/ops/positions.h"

namespace atl::ops {

namespace {

// The operands of one call; those that an op does not have are undefined.
struct AttentionArgs {
  HeadLayout heads;
  AttentionScores scores;
  AttentionMask mask;
  Tensor qkv, out, lse, dout, dqkv;
  std::int64_t key_offset = 0;
  Tensor k_cache, v_cache;
};
using AttentionImplementation = Implementation<AttentionArgs>;

template <typename Fn>
Declined serve_tiled(const Run& run, const AttentionArgs& a, Fn&& fn) {
  if (a.heads.head_dim > cpu::kMaxHeadDim) return "head_dim above 256";
  return serve_f32_or_bf16(run, a.qkv.dtype(), fn);
}

// Products over the keys that each query sees: all of them before it, or a window of them.
double attention_flops(const HeadLayout& heads, const AttentionMask& mask, const Tensor& qkv,
                       int products) {
  const auto T = static_cast<double>(qkv.dim(1));
  const double W = mask.window > 0 ? std::min(static_cast<double>(mask.window), T) : T;
  const double pairs = W * T - W * W / 2;
  return products * 2.0 * static_cast<double>(qkv.dim(0)) * pairs *
         static_cast<double>(heads.query_width());
}

OpCost cached_cost(const AttentionArgs& args) {
  OpCost cost = cost_of({args.qkv, args.out});
  const auto keys = static_cast<double>(args.key_offset + args.qkv.dim(1));
  cost.bytes += 2 * static_cast<double>(args.k_cache.spec().bytes()) * keys /
                static_cast<double>(args.k_cache.dim(1));
  return cost;
}

// Rows with the bits that a sampler gives them, where Run::row_stable asks for it.
Declined forward_by_rows(Run& run, const AttentionArgs& a) {
  if (!run.row_stable) return "rows need not be those of a sampler";
  if (a.mask.positions.defined()) return "several documents";
  if (a.qkv.dtype() != Dtype::kF32) return "not f32";
  if (a.heads.head_dim > cpu::kMaxHeadDim) return "head_dim above 256";
  return serve_host(run, [&] {
    cpu::attention_by_rows(run, a.heads, a.scores, a.mask.window, a.qkv, a.out, a.lse);
  });
}

constexpr AttentionImplementation kForward[] = {
    {"cpu_rows", forward_by_rows},
    {"amx",
     [](Run& run, const AttentionArgs& a) {
       return cpu::attention_amx_forward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
     }},
    {"cpu",
     [](Run& run, const AttentionArgs& a) {
       return serve_tiled(run, a, [&] {
         cpu::attention_forward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
       });
     }},
    {"cudnn",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_cudnn_forward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
     }},
    {"cuda_mma",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_mma_forward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
     }},
    {"cuda",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_forward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
     }},
    {"ref",
     [](Run& run, const AttentionArgs& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::attention_forward<T>(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse);
       });
     }},
};

constexpr AttentionImplementation kBackward[] = {
    {"amx",
     [](Run& run, const AttentionArgs& a) {
       return cpu::attention_amx_backward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse,
                                          a.dout, a.dqkv);
     }},
    {"cpu",
     [](Run& run, const AttentionArgs& a) {
       return serve_tiled(run, a, [&] {
         cpu::attention_backward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse, a.dout,
                                 a.dqkv);
       });
     }},
    {"cudnn",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_cudnn_backward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse,
                                             a.dout, a.dqkv);
     }},
    {"cuda_mma",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_mma_backward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse,
                                           a.dout, a.dqkv);
     }},
    {"cuda",
     [](Run& run, const AttentionArgs& a) {
       return cuda::attention_backward(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse, a.dout,
                                       a.dqkv);
     }},
    {"ref",
     [](Run& run, const AttentionArgs& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::attention_backward<T>(run, a.heads, a.scores, a.mask, a.qkv, a.out, a.lse, a.dout,
                                    a.dqkv);
       });
     }},
};

constexpr AttentionImplementation kCached[] = {
    {"cpu",
     [](Run& run, const AttentionArgs& a) {
       return serve_tiled(run, a, [&] {
         cpu::attention_cached(run, a.heads, a.scores, a.mask.window, a.key_offset, a.qkv,
                               a.k_cache, a.v_cache, a.out, a.lse);
       });
     }},
    {"cuda_mma",
     [](Run& run, const AttentionArgs& a) -> Declined {
       if (a.lse.defined()) return "gives no log-sum-exp";
       return cuda::attention_mma_cached(run, a.heads, a.scores, a.mask.window, a.key_offset, a.qkv,
                                         a.k_cache, a.v_cache, a.out);
     }},
    {"cuda",
     [](Run& run, const AttentionArgs& a) -> Declined {
       if (a.lse.defined()) return "gives no log-sum-exp";
       return cuda::attention_cached(run, a.heads, a.scores, a.mask.window, a.key_offset, a.qkv,
                                     a.k_cache, a.v_cache, a.out);
     }},
    {"ref",
     [](Run& run, const AttentionArgs& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::attention_cached<T>(run, a.heads, a.scores, a.mask.window, a.key_offset, a.qkv,
                                  a.k_cache, a.v_cache, a.out, a.lse);
       });
     }},
};

void check_mask(const char* op, const AttentionMask& mask, const Tensor& qkv) {
  check_window(op, mask);
  check_documents(op, mask.positions, qkv.shape().num_rows(), qkv.dim(1));
}

// A cache holds one document, so the position of each new row is its place in the cache. What a GPU
// has is checked before it is copied there.
void check_cached_positions(const char* op, const Tensor& positions, std::int64_t key_offset,
                            const Tensor& qkv) {
  if (!positions.defined()) return;
  const std::int64_t T = qkv.dim(1);
  check_size(op, Dtype::kI32, qkv.shape().num_rows(), {positions});
  if (!is_readable(positions)) return;
  for (std::int64_t row = 0; row < positions.num_elements(); ++row) {
    const std::int32_t position = positions.data<std::int32_t>()[row];
    ATOLL_CHECK(position == key_offset + row % T, "{}: position {} at place {} of a cache", op,
                position, key_offset + row % T);
  }
}

// Copies the new keys and values to rows [key_offset, key_offset + T) of the caches.
void store_on_host(Run& run, const AttentionArgs& a) {
  constexpr std::int64_t kRowsPerTask = 16;
  const std::int64_t T = a.qkv.dim(1);
  const std::size_t size = dtype_size(a.qkv.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(a.heads.kv_width()) * size;
  const auto* from = static_cast<const std::byte*>(a.qkv.raw());
  auto* keys = static_cast<std::byte*>(a.k_cache.raw());
  auto* values = static_cast<std::byte*>(a.v_cache.raw());
  run.threads().run_chunked(
      a.qkv.dim(0) * T, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t cached = row / T * a.k_cache.dim(1) + a.key_offset + row % T;
          const std::byte* k =
              from +
              static_cast<std::size_t>(row * a.heads.qkv_width() + a.heads.query_width()) * size;
          const std::size_t offset = static_cast<std::size_t>(cached) * row_bytes;
          std::memcpy(keys + offset, k, row_bytes);
          std::memcpy(values + offset, k + row_bytes, row_bytes);
        }
      });
}

// Copies move bytes, so one implementation serves every dtype of a host.
constexpr AttentionImplementation kStore[] = {
    {"cpu", [](Run& run,
               const AttentionArgs& a) { return serve_host(run, [&] { store_on_host(run, a); }); }},
    {"cuda",
     [](Run& run, const AttentionArgs& a) {
       return cuda::store_keys(run, a.heads, a.key_offset, a.qkv, a.k_cache, a.v_cache);
     }},
};

}  // namespace

void attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                       const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse) {
  constexpr const char* kOp = "attention_forward";
  check_heads(kOp, heads, qkv);
  check_spec(kOp, attended_spec(heads, qkv), {out});
  check_spec(kOp, lse_spec(heads, qkv), {lse});
  check_scores(kOp, scores);
  check_mask(kOp, mask, qkv);
  dispatch<AttentionArgs>(kOp, kForward, run, {heads, scores, mask, qkv, out, lse},
                          cost_of({qkv, out, lse}, attention_flops(heads, mask, qkv, 2)));
}

void attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                        const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse, Tensor dout,
                        Tensor dqkv) {
  constexpr const char* kOp = "attention_backward";
  check_heads(kOp, heads, qkv);
  check_spec(kOp, qkv.spec(), {qkv, dqkv});
  check_spec(kOp, attended_spec(heads, qkv), {out, dout});
  check_spec(kOp, lse_spec(heads, qkv), {lse});
  check_scores(kOp, scores);
  check_mask(kOp, mask, qkv);
  dispatch<AttentionArgs>(
      kOp, kBackward, run, {heads, scores, mask, qkv, out, lse, dout, dqkv},
      cost_of({qkv, out, lse, dout, dqkv}, attention_flops(heads, mask, qkv, 5)));
}

std::size_t attention_scratch_bytes(const HeadLayout& heads, const Spec& qkv) {
  return std::max({cpu::attention_backward_scratch_bytes(heads, qkv),
                   cpu::attention_cached_scratch_bytes(heads, qkv),
                   cuda::attention_mma_scratch_bytes(heads, qkv),
                   cuda::attention_cudnn_scratch_bytes(heads, qkv)});
}

void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      const AttentionMask& mask, std::int64_t key_offset, Tensor qkv,
                      Tensor k_cache, Tensor v_cache, Tensor out) {
  attention_cached(run, heads, scores, mask, key_offset, qkv, k_cache, v_cache, out, {});
}

void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      const AttentionMask& mask, std::int64_t key_offset, Tensor qkv,
                      Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse) {
  constexpr const char* kOp = "attention_cached";
  check_heads(kOp, heads, qkv);
  const Spec cache = {qkv.dtype(), {qkv.dim(0), k_cache.dim(1), heads.kv_width()}};
  check_spec(kOp, cache, {k_cache, v_cache});
  check_spec(kOp, attended_spec(heads, qkv), {out});
  if (lse.defined()) check_spec(kOp, lse_spec(heads, qkv), {lse});
  check_scores(kOp, scores);
  check_window(kOp, mask);
  check_cached_positions(kOp, mask.positions, key_offset, qkv);
  ATOLL_CHECK(key_offset >= 0 && key_offset + qkv.dim(1) <= k_cache.dim(1),
              "{}: {} earlier and {} new keys in a cache of {}", kOp, key_offset, qkv.dim(1),
              k_cache.dim(1));
  const AttentionArgs args = {.heads = heads,
                              .scores = scores,
                              .mask = {.window = mask.window},
                              .qkv = qkv,
                              .out = out,
                              .lse = lse,
                              .key_offset = key_offset,
                              .k_cache = k_cache,
                              .v_cache = v_cache};
  const double new_rows = static_cast<double>(qkv.spec().bytes()) *
                          static_cast<double>(2 * heads.kv_width()) /
                          static_cast<double>(heads.qkv_width());
  dispatch<AttentionArgs>("attention_store", kStore, run, args, {.bytes = 2 * new_rows});
  dispatch<AttentionArgs>(kOp, kCached, run, args, cached_cost(args));
}

}  // namespace atl::ops
