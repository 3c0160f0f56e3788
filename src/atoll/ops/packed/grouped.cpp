#include "atoll/ops/packed/grouped.h"

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/grouped_matmul.h"

namespace atl::ops {

namespace {

Shape shape_of_one(const Shape& w, std::int64_t num_groups) {
  return {w.dim(0) / num_groups, w.dim(1)};
}

}  // namespace

void grouped_matmul_packed(Run& run, Transpose transpose, const Tensor& a, const PackedMatrix& w,
                           const Tensor& offsets, const Tensor& c) {
  const std::int64_t count = offsets.num_elements() - 1;
  const Shape one = shape_of_one(w.shape, count);
  const auto* begins = offsets.data<std::int32_t>();
  Run inner = run;
  const Tensor wide = inner.take_scratch({Dtype::kF32, one});
  const Tensor weight = a.dtype() == Dtype::kF32 ? wide : inner.take_scratch({a.dtype(), one});
  const Tensor all = inner.take_scratch({Dtype::kI32, {2}});  // one group of all rows
  for (std::int64_t e = 0; e < count; ++e) {
    const std::int64_t begin = begins[e], end = begins[e + 1];
    if (begin == end) continue;
    widen_packed(inner, w, e * one.dim(0), (e + 1) * one.dim(0), wide);
    if (weight.dtype() != Dtype::kF32) convert(inner, wide, weight);
    all.data<std::int32_t>()[0] = 0;
    all.data<std::int32_t>()[1] = static_cast<std::int32_t>(end - begin);
    grouped_matmul(inner, transpose, a.rows(begin, end), weight, all, c.rows(begin, end));
  }
  if (begins[count] < c.dim(0)) fill_zero(inner, c.rows(begins[count], c.dim(0)));
}

std::size_t grouped_matmul_packed_scratch_bytes(const Spec& y, const Spec& x, const Shape& w,
                                                std::int64_t num_groups) {
  const Spec one = {x.dtype, shape_of_one(w, num_groups)};
  const std::size_t narrow = x.dtype == Dtype::kF32 ? 0 : align_up(one.bytes());
  return align_up(Spec{Dtype::kF32, one.shape}.bytes()) + narrow +
         align_up(Spec{Dtype::kI32, {2}}.bytes()) +
         grouped_matmul_scratch_bytes(y, x, one, /*num_groups=*/1);
}

}  // namespace atl::ops
