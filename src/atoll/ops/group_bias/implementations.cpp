#include "atoll/ops/implementations.h"

#include "atoll/ops/group_bias/group_bias.h"
#include "atoll/ops/group_bias/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct GroupArgs {
  bool adds = true;
  Tensor bias, offsets, rows;
};

constexpr Implementation<GroupArgs> kBias[] = {
    {"ref", [](Run& run, const GroupArgs& a) {
       return serve_any_storage(run, a.rows.dtype(), [&]<typename T>(T) {
         ref::group_bias<T>(run, a.adds, a.bias, a.offsets, a.rows);
       });
     }}};

constexpr Implementation<GroupArgs> kSums[] = {
    {"ref", [](Run& run, const GroupArgs& a) {
       return serve_any_storage(run, a.rows.dtype(), [&]<typename T>(T) {
         ref::add_group_sums<T>(run, a.rows, a.offsets, a.bias);
       });
     }}};

void check(const char* op, const GroupArgs& args) {
  ATOLL_CHECK(args.rows.shape().rank() == 2 && args.offsets.num_elements() > 1,
              "{}: {} in {} parts", op, args.rows.spec().to_string(), args.offsets.num_elements());
  const std::int64_t elements = (args.offsets.num_elements() - 1) * args.rows.dim(1);
  check_spec(op, {args.bias.dtype(), {elements}}, {args.bias});
  check_spec(op, {Dtype::kI32, {args.offsets.num_elements()}}, {args.offsets});
}

}  // namespace

void add_group_bias(Run& run, Tensor bias, Tensor offsets, Tensor rows) {
  const GroupArgs args = {true, bias, offsets, rows};
  check("add_group_bias", args);
  dispatch<GroupArgs>("add_group_bias", kBias, run, args, cost_of({bias, rows, rows}));
}

void fill_group_bias(Run& run, Tensor bias, Tensor offsets, Tensor rows) {
  const GroupArgs args = {false, bias, offsets, rows};
  check("fill_group_bias", args);
  dispatch<GroupArgs>("fill_group_bias", kBias, run, args, cost_of({bias, rows}));
}

void add_group_sums(Run& run, Tensor rows, Tensor offsets, Tensor dbias) {
  const GroupArgs args = {true, dbias, offsets, rows};
  check("add_group_sums", args);
  ATOLL_CHECK(dbias.dtype() == compute_dtype(rows.dtype()), "add_group_sums: {}",
              dbias.spec().to_string());
  dispatch<GroupArgs>("add_group_sums", kSums, run, args, cost_of({rows, dbias}));
}

}  // namespace atl::ops
