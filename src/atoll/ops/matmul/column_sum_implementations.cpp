#include "atoll/ops/matmul/cpu_column_sum.h"

#include "atoll/ops/matmul/cuda_column_sum.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

Declined column_sum_ref(Run& run, const ColumnSumArgs& args) {
  return serve_any_storage(run, args.dy.dtype(), [&]<typename T>(T) {
    ref::column_sum<T>(args.dy.shape().num_rows(), args.dy.dim(-1), args.dy.data<T>(),
                       args.dbias.data<Compute<T>>());
  });
}

constexpr Implementation<ColumnSumArgs> kColumnSum[] = {
    {"cpu", cpu::column_sum},
    {"cuda", cuda::column_sum},
    {"ref", column_sum_ref},
};

constexpr Implementation<AddColumnSumsArgs> kAddColumnSums[] = {
    {"cpu", cpu::add_column_sums},
    {"cuda", cuda::add_column_sums},
    {"ref",
     [](Run& run, const AddColumnSumsArgs& a) {
       return serve_any_float(run, a.sums.dtype(), [&]<typename T>(T) {
         ref::column_sum<T>(a.sums.dim(0), a.sums.dim(1), a.sums.data<T>(), a.dbias.data<T>());
       });
     }},
};

}  // namespace

void column_sum(Run& run, Tensor dy, Tensor dbias) {
  ATOLL_CHECK(dy.shape().rank() > 0, "column_sum of {}", dy.spec().to_string());
  if (dy.num_elements() == 0) return;
  check_size("column_sum", dy.dtype(), dy.num_elements(), {dy});
  check_size("column_sum", compute_dtype(dy.dtype()), dy.dim(-1), {dbias});
  dispatch<ColumnSumArgs>("column_sum", kColumnSum, run, {dy, dbias}, cost_of({dy, dbias, dbias}));
}

Spec column_sums_spec(const Spec& dy) {
  const std::int64_t blocks = column_sum_rows(dy.shape.num_rows()).count;
  return {compute_dtype(dy.dtype), {blocks, dy.shape.dim(-1)}};
}

void add_column_sums(Run& run, Tensor sums, Tensor dbias) {
  ATOLL_CHECK(sums.shape().rank() == 2, "{}", sums.spec().to_string());
  if (sums.num_elements() == 0) return;
  check_size("add_column_sums", sums.dtype(), sums.dim(1), {dbias});
  dispatch<AddColumnSumsArgs>("add_column_sums", kAddColumnSums, run, {sums, dbias},
                              cost_of({sums, dbias, dbias}));
}

std::size_t column_sum_scratch_bytes(const Spec& dy) {
  if (dy.dtype == Dtype::kF64) return 0;
  return cpu::column_sum_scratch_bytes(dy.shape.num_rows(), dy.shape.dim(-1));
}

}  // namespace atl::ops
