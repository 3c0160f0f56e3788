#include "atoll/ops/matmul/grouped_matmul.h"

#include <algorithm>
#include <cstring>

#include "atoll/ops/int8/int8_arithmetic.h"
#include "atoll/ops/matmul/cpu_few_rows.h"
#include "atoll/ops/matmul/cpu_tiled.h"
#include "atoll/ops/matmul/cuda_grouped_matmul.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct Grouped {
  Transpose transpose;
  Tensor a, b, offsets, c;  // b: weights, or rows for kTN, where c is dw
  std::int64_t num_groups() const { return offsets.num_elements() - 1; }
};

// Rows [begin, end) of each group that has any: fn(group, begin, end).
template <typename Fn>
void for_groups(const Tensor& offsets, std::int64_t num_rows, Fn&& fn) {
  const auto* at = offsets.data<std::int32_t>();
  const std::int64_t groups = offsets.num_elements() - 1;
  ATOLL_CHECK(at[0] == 0 && at[groups] <= num_rows, "groups of rows {} to {} of {}", at[0],
              at[groups], num_rows);
  for (std::int64_t g = 0; g < groups; ++g) {
    ATOLL_CHECK(at[g] <= at[g + 1], "group {} has {} rows", g, at[g + 1] - at[g]);
    if (at[g] < at[g + 1]) fn(g, std::int64_t{at[g]}, std::int64_t{at[g + 1]});
  }
}

// The part of stacked weights that is group g's.
Tensor part_of(const Tensor& stacked, std::int64_t g, std::int64_t num_groups) {
  const std::int64_t rows = stacked.dim(0) / num_groups;
  return stacked.rows(g * rows, (g + 1) * rows);
}

void clear_left_over(const Tensor& offsets, const Tensor& c) {
  const std::int64_t used = offsets.data<std::int32_t>()[offsets.num_elements() - 1];
  const Tensor rest = c.rows(used, c.dim(0));
  if (rest.bytes() > 0) std::memset(rest.raw(), 0, rest.bytes());
}

// One group's product, as fn(a, b, c) sees it.
template <typename Fn>
void for_products(const Grouped& args, Fn&& fn) {
  const bool is_tn = args.transpose == Transpose::kTN;
  for_groups(args.offsets, args.a.dim(0),
             [&](std::int64_t g, std::int64_t begin, std::int64_t end) {
               const Tensor a = args.a.rows(begin, end);
               if (is_tn)
                 fn(a, args.b.rows(begin, end), part_of(args.c, g, args.num_groups()));
               else
                 fn(a, part_of(args.b, g, args.num_groups()), args.c.rows(begin, end));
             });
  if (!is_tn) clear_left_over(args.offsets, args.c);
}

// Our own kernels alone. The number of rows of a group is another at every step, and the library
// would make a kernel for each.
Declined tiled(Run& run, const Grouped& args) {
  const Dtype f32 = Dtype::kF32;
  if (args.a.dtype() != f32 || args.b.dtype() != f32 || args.c.dtype() != f32) return "not f32";
  const bool is_tn = args.transpose == Transpose::kTN;
  return serve_host(run, [&] {
    for_products(args, [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      const std::int64_t k = is_tn ? a.dim(0) : a.dim(1);
      const MatmulShape shape = {args.transpose, c.dim(0), c.dim(1), k};
      const MatmulArgs product = {shape, a, b, c, {}, is_tn};
      if (cpu::matmul_few_rows(run, product) == kServed) return;
      cpu::multiply_tiled(
          run, {shape, a.data<float>(), b.data<float>(), c.data<float>(), nullptr, is_tn});
    });
  });
}

Declined each_by_itself(Run& run, const Grouped& args) {
  return serve_host(run, [&] {
    for_products(args, [&](const Tensor& a, const Tensor& b, const Tensor& c) {
      matmul(run, args.transpose, a, b, c, {}, args.transpose == Transpose::kTN);
    });
  });
}

constexpr Implementation<Grouped> kGrouped[] = {
    {"tiled", tiled},
    {"cuda",
     [](Run& run, const Grouped& a) {
       return cuda::grouped_matmul(run, a.transpose, a.a, a.b, a.offsets, a.c);
     }},
    {"each", each_by_itself},
};

constexpr const char* kNames[] = {"grouped_matmul_nn", "grouped_matmul_nt", "grouped_matmul_tn"};

OpCost cost(const Grouped& args, const Tensor& rows, std::int64_t width) {
  const auto flops = 2.0 * static_cast<double>(rows.num_elements()) * static_cast<double>(width);
  return cost_of({args.a, args.b, args.c}, flops);
}

void check_weights(const char* op, const Shape& w, const Tensor& offsets) {
  check_spec(op, {Dtype::kI32, {offsets.num_elements()}}, {offsets});
  ATOLL_CHECK(
      offsets.num_elements() >= 2 && w.rank() == 2 && w.dim(0) % (offsets.num_elements() - 1) == 0,
      "{}: weights {} of {} groups", op, w.to_string(), offsets.num_elements() - 1);
}

}  // namespace

void grouped_matmul(Run& run, Transpose transpose, Tensor a, Tensor w, Tensor offsets, Tensor c) {
  const char* op = kNames[static_cast<std::size_t>(transpose)];
  check_weights(op, w.shape(), offsets);
  ATOLL_CHECK(transpose != Transpose::kTN, "grouped_matmul_tn makes gradients of weights");
  const std::int64_t out = w.dim(0) / (offsets.num_elements() - 1);
  const bool is_nt = transpose == Transpose::kNT;
  check_spec(op, {a.dtype(), {a.dim(0), is_nt ? w.dim(1) : out}}, {a});
  check_spec(op, {c.dtype(), {a.dim(0), is_nt ? out : w.dim(1)}}, {c});
  const Grouped args = {transpose, a, w, offsets, c};
  dispatch<Grouped>(op, kGrouped, run, args, cost(args, a, c.dim(1)));
}

void grouped_matmul_tn(Run& run, Tensor a, Tensor b, Tensor offsets, Tensor dw) {
  const char* op = kNames[static_cast<std::size_t>(Transpose::kTN)];
  check_weights(op, dw.shape(), offsets);
  const std::int64_t out = dw.dim(0) / (offsets.num_elements() - 1);
  check_spec(op, {a.dtype(), {b.dim(0), out}}, {a});
  check_spec(op, {b.dtype(), {a.dim(0), dw.dim(1)}}, {b});
  const Grouped args = {Transpose::kTN, a, b, offsets, dw};
  dispatch<Grouped>(op, kGrouped, run, args, cost(args, a, b.dim(1)));
}

namespace {

struct GroupedInt8 {
  Tensor a;
  Int8Matrix w;
  Tensor offsets, c;
};

Declined int8_each_by_itself(Run& run, const GroupedInt8& args) {
  return serve_host(run, [&] {
    const std::int64_t groups = args.offsets.num_elements() - 1;
    for_groups(args.offsets, args.a.dim(0),
               [&](std::int64_t g, std::int64_t begin, std::int64_t end) {
                 const Int8Matrix part = {part_of(args.w.values, g, groups),
                                          part_of(args.w.scales, g, groups)};
                 matmul_int8(run, args.a.rows(begin, end), part, args.c.rows(begin, end));
               });
    clear_left_over(args.offsets, args.c);
  });
}

constexpr Implementation<GroupedInt8> kGroupedInt8[] = {
    {"cuda",
     [](Run& run, const GroupedInt8& args) {
       const bool rounds = int8_arithmetic(args.a.dim(0)) != Int8Arithmetic::kF32;
       return cuda::grouped_matmul_int8(run, args.a, args.w, args.offsets, args.c, rounds);
     }},
    {"each", int8_each_by_itself},
};

}  // namespace

void grouped_matmul_int8(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c) {
  const char* op = "grouped_matmul_int8";
  const Shape weights = w.values.shape();
  check_weights(op, weights, offsets);
  check_spec(op, int8_values_spec(weights), {w.values});
  check_spec(op, int8_scales_spec(weights), {w.scales});
  check_spec(op, {Dtype::kF32, {a.dim(0), weights.dim(1)}}, {a});
  check_spec(op, {Dtype::kF32, {a.dim(0), weights.dim(0) / (offsets.num_elements() - 1)}}, {c});
  dispatch<GroupedInt8>(op, kGroupedInt8, run, {a, w, offsets, c});
}

std::size_t grouped_matmul_scratch_bytes(const Spec& a, const Spec& b, const Spec& w,
                                         std::int64_t num_groups, DeviceKind device) {
  // All rows in one group take most: what kTN packs grows with them, the others pack nothing.
  const Spec part = {w.dtype, {w.shape.dim(0) / num_groups, w.shape.dim(1)}};
  std::size_t bytes = std::max({matmul_scratch_bytes(Transpose::kNT, b, part, device),
                                matmul_scratch_bytes(Transpose::kNN, a, part, device),
                                matmul_scratch_bytes(Transpose::kTN, a, b, device)});
  if (a.dtype == Dtype::kF32 && device == DeviceKind::kCpu) {
    const MatmulShape dw = {Transpose::kTN, a.shape.dim(1), b.shape.dim(1), a.shape.dim(0)};
    bytes = std::max(bytes, cpu::tiled_scratch_bytes(dw));
  }
  return bytes;
}

std::size_t grouped_matmul_int8_scratch_bytes(const Spec& a, const Shape& w,
                                              std::int64_t num_groups) {
  return matmul_int8_scratch_bytes(a, {w.dim(0) / num_groups, w.dim(1)});
}

}  // namespace atl::ops
