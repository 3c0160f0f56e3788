#include "atoll/ops/routing/expert_rows.h"

#include <algorithm>

#include "atoll/ops/cpu/row_grain.h"
#include "atoll/ops/routing/cuda_expert_rows.h"
#include "atoll/ops/routing/ref_expert_rows.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

// What a task reads: a part of a core's second cache.
constexpr std::int64_t kTaskBytes = 256 << 10;

// Rows of a task over the rows of a tensor.
std::int64_t grain(const Tensor& rows) {
  return cpu::row_grain(rows.dim(0), static_cast<std::int64_t>(rows.bytes()), kTaskBytes);
}

struct Assign {
  Tensor experts;
  std::int64_t capacity;
  Tensor places, sources, offsets;
};
struct Gather {
  Tensor x, sources, rows;
};
struct Combine {
  Tensor rows, places, weights, y;
};
struct Weigh {
  Tensor weights, sources, dh, h, d, dweights;
};

Declined assign_ref(Run& run, const Assign& a) {
  return serve_host(run, [&] {
    const std::int64_t num_experts = a.offsets.num_elements() - 1;
    const std::int64_t choices = a.experts.num_elements();
    const auto* chosen = a.experts.data<std::int32_t>();
    for (std::int64_t i = 0; i < choices; ++i) {
      ATOLL_CHECK(chosen[i] >= 0 && chosen[i] < num_experts, "expert {} of {}", chosen[i],
                  num_experts);
    }
    auto* offsets = a.offsets.data<std::int32_t>();
    const std::int64_t dropped =
        ref::assign_rows(chosen, a.experts.dim(0), a.experts.dim(1), num_experts, a.capacity,
                         a.places.data<std::int32_t>(), a.sources.data<std::int32_t>(), offsets);
    ATOLL_CHECK(offsets[num_experts] + dropped == choices,
                "{} choices of experts: {} have a row and {} have none", choices,
                offsets[num_experts], dropped);
  });
}

Declined gather_ref(Run& run, const Gather& a) {
  return serve_host(run, [&] {
    const std::int64_t k = a.rows.dim(0) / a.x.dim(0);
    const std::size_t bytes = a.x.bytes() / static_cast<std::size_t>(a.x.dim(0));
    run.threads().run_chunked(a.rows.dim(0), grain(a.rows), [&](auto begin, auto end) {
      ref::gather_rows(static_cast<const std::byte*>(a.x.raw()), a.sources.data<std::int32_t>(), k,
                       bytes, static_cast<std::byte*>(a.rows.raw()), begin, end);
    });
  });
}

Declined combine_ref(Run& run, const Combine& a) {
  return serve_any_storage(run, a.rows.dtype(), [&]<typename T>(T) {
    const std::int64_t width = a.y.dim(1);
    const auto* weights = a.weights.defined() ? a.weights.data<Compute<T>>() : nullptr;
    run.threads().run_chunked(a.y.dim(0), grain(a.y), [&](auto begin, auto end) {
      static thread_local std::vector<Compute<T>> sum;
      sum.resize(static_cast<std::size_t>(width));
      ref::combine_rows(a.rows.data<T>(), a.places.data<std::int32_t>(), weights, a.places.dim(1),
                        width, sum.data(), a.y.data<T>(), begin, end);
    });
  });
}

Declined weigh_ref(Run& run, const Weigh& a) {
  return serve_any_storage(run, a.h.dtype(), [&]<typename T>(T) {
    auto* dweights = a.dweights.data<Compute<T>>();
    std::fill_n(dweights, a.dweights.num_elements(), Compute<T>{0});
    run.threads().run_chunked(a.h.dim(0), grain(a.d), [&](auto begin, auto end) {
      ref::weigh_rows(a.weights.data<Compute<T>>(), a.sources.data<std::int32_t>(), a.dh.data<T>(),
                      a.h.data<T>(), a.h.dim(1), a.d.data<T>(), a.d.dim(1), dweights, begin, end);
    });
  });
}

constexpr Implementation<Assign> kAssign[] = {
    {"cuda",
     [](Run& run, const Assign& a) {
       return cuda::assign_rows(run, a.experts, a.capacity, a.places, a.sources, a.offsets);
     }},
    {"ref", assign_ref},
};
constexpr Implementation<Gather> kGather[] = {
    {"cuda",
     [](Run& run, const Gather& a) { return cuda::gather_rows(run, a.x, a.sources, a.rows); }},
    {"ref", gather_ref},
};
constexpr Implementation<Combine> kCombine[] = {
    {"cuda",
     [](Run& run, const Combine& a) {
       return cuda::combine_rows(run, a.rows, a.places, a.weights, a.y);
     }},
    {"ref", combine_ref},
};
constexpr Implementation<Weigh> kWeigh[] = {
    {"cuda",
     [](Run& run, const Weigh& a) {
       return cuda::weigh_rows(run, a.weights, a.sources, a.dh, a.h, a.d, a.dweights);
     }},
    {"ref", weigh_ref},
};

}  // namespace

void assign_rows(Run& run, Tensor experts, std::int64_t capacity, Tensor places, Tensor sources,
                 Tensor offsets) {
  ATOLL_CHECK(experts.shape().rank() == 2 && offsets.num_elements() >= 2 && capacity >= 1,
              "assign_rows: {} to {}, {} each", experts.spec().to_string(),
              offsets.spec().to_string(), capacity);
  ATOLL_CHECK(experts.num_elements() < (std::int64_t{1} << 31), "assign_rows: {} choices",
              experts.num_elements());
  check_spec("assign_rows", {Dtype::kI32, experts.shape()}, {experts, places});
  check_spec("assign_rows", {Dtype::kI32, {experts.num_elements()}}, {sources});
  check_spec("assign_rows", {Dtype::kI32, {offsets.num_elements()}}, {offsets});
  dispatch<Assign>("assign_rows", kAssign, run, {experts, capacity, places, sources, offsets},
                   cost_of({experts, places, sources}));
}

std::size_t assign_rows_scratch_bytes(std::int64_t choices, std::int64_t num_experts) {
  return cuda::assign_rows_scratch_bytes(choices, num_experts);
}

void gather_rows(Run& run, Tensor x, Tensor sources, Tensor rows) {
  ATOLL_CHECK(x.shape().rank() == 2 && x.dim(0) > 0 && sources.num_elements() % x.dim(0) == 0,
              "gather_rows: {} by {}", x.spec().to_string(), sources.spec().to_string());
  check_spec("gather_rows", {Dtype::kI32, {sources.num_elements()}}, {sources});
  check_spec("gather_rows", {x.dtype(), {sources.num_elements(), x.dim(1)}}, {rows});
  dispatch<Gather>("gather_rows", kGather, run, {x, sources, rows}, cost_of({rows, rows}));
}

void combine_rows(Run& run, Tensor rows, Tensor places, Tensor weights, Tensor y) {
  check_spec("combine_rows", {rows.dtype(), {places.num_elements(), y.dim(-1)}}, {rows});
  check_spec("combine_rows", {Dtype::kI32, {y.dim(0), places.dim(-1)}}, {places});
  check_spec("combine_rows", {rows.dtype(), {places.dim(0), y.dim(-1)}}, {y});
  if (weights.defined()) {
    check_spec("combine_rows", {compute_dtype(rows.dtype()), places.shape()}, {weights});
  }
  dispatch<Combine>("combine_rows", kCombine, run, {rows, places, weights, y}, cost_of({rows, y}));
}

void weigh_rows(Run& run, Tensor weights, Tensor sources, Tensor dh, Tensor h, Tensor d,
                Tensor dweights) {
  const std::int64_t rows = sources.num_elements();
  check_spec("weigh_rows", {compute_dtype(h.dtype()), weights.shape()}, {weights, dweights});
  ATOLL_CHECK_EQ(weights.num_elements(), rows);
  check_spec("weigh_rows", {Dtype::kI32, {rows}}, {sources});
  check_spec("weigh_rows", {h.dtype(), {rows, h.dim(-1)}}, {h, dh});
  check_spec("weigh_rows", {h.dtype(), {rows, d.dim(-1)}}, {d});
  dispatch<Weigh>("weigh_rows", kWeigh, run, {weights, sources, dh, h, d, dweights},
                  cost_of({h, h, dh, d, d}));
}

}  // namespace atl::ops
