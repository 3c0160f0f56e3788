#include "atoll/ops/rope/rope.h"

#include "atoll/ops/positions.h"
#include "atoll/ops/rope/cpu.h"
#include "atoll/ops/rope/cuda.h"
#include "atoll/ops/rope/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Args {
  HeadLayout heads;
  Tensor table;
  Tensor positions;
  bool inverse;
  Tensor qkv;
  RotaryPairs pairs;
};

constexpr Implementation<Args> kRope[] = {
    {"cpu",
     [](Run& run, const Args& a) {
       return serve_f32_or_bf16(run, a.qkv.dtype(), [&] {
         cpu::rope(run, a.heads, a.table, a.positions, a.inverse, a.qkv, a.pairs);
       });
     }},
    {"cuda",
     [](Run& run, const Args& a) {
       return cuda::rope(run, a.heads, a.table, a.positions, a.inverse, a.qkv, a.pairs);
     }},
    {"ref",
     [](Run& run, const Args& a) {
       return serve_any_storage(run, a.qkv.dtype(), [&]<typename T>(T) {
         ref::rope<T>(a.heads, a.table, a.positions, a.inverse, a.qkv, a.pairs);
       });
     }},
};

}  // namespace

void rope(Run& run, const HeadLayout& heads, Tensor table, Tensor positions, bool inverse,
          Tensor qkv, RotaryPairs pairs) {
  ATOLL_CHECK(heads.num_heads > 0 && heads.num_kv_heads > 0 && heads.head_dim > 0,
              "rope: {} heads, {} key-value heads of {} elements", heads.num_heads,
              heads.num_kv_heads, heads.head_dim);
  ATOLL_CHECK(qkv.shape().rank() >= 2 && qkv.dim(-1) == heads.qkv_width(),
              "rope: qkv is {}, its innermost dim must be {}", qkv.spec().to_string(),
              heads.qkv_width());
  ATOLL_CHECK(table.dtype() == compute_dtype(qkv.dtype()) && table.shape().rank() == 2 &&
                  table.dim(1) > 0 && table.dim(1) % 2 == 0 && table.dim(1) <= heads.head_dim,
              "rope: table is {} for qkv {} and heads of {} elements", table.spec().to_string(),
              qkv.spec().to_string(), heads.head_dim);
  check_positions("rope", positions, qkv.shape().num_rows(), qkv.dim(-2), table.dim(0));
  // Values are not touched, nor what follows the rotated elements of a head.
  OpCost cost = cost_of({qkv, qkv});
  cost.bytes *= static_cast<double>(heads.num_heads + heads.num_kv_heads) /
                static_cast<double>(heads.num_heads + 2 * heads.num_kv_heads) *
                static_cast<double>(table.dim(1)) / static_cast<double>(heads.head_dim);
  dispatch<Args>("rope", kRope, run, {heads, table, positions, inverse, qkv, pairs}, cost);
}

}  // namespace atl::ops
