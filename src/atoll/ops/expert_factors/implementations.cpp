#include "atoll/ops/implementations.h"

#include <algorithm>

#include "atoll/ops/expert_factors/expert_factors.h"
#include "atoll/ops/expert_factors/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct OrderArgs {
  double scale;
  const FactorOrder& order;
  Tensor file, product;
};

constexpr Implementation<OrderArgs> kForward[] = {
    {"ref", [](Run& run, const OrderArgs& a) {
       return serve_any_storage(run, a.product.dtype(), [&]<typename T>(T) {
         ref::order_factor<T>(run, a.scale, a.order, a.file, a.product);
       });
     }}};

constexpr Implementation<OrderArgs> kBackward[] = {
    {"ref", [](Run& run, const OrderArgs& a) {
       return serve_any_float(run, a.product.dtype(), [&]<typename T>(T) {
         ref::order_factor_backward<T>(run, a.scale, a.order, a.product, a.file);
       });
     }}};

void check(const char* op, const OrderArgs& args) {
  const auto width = static_cast<std::int64_t>(args.order.columns.size());
  const std::int64_t rows = args.file.dim(0);
  ATOLL_CHECK(args.order.num_experts > 0 && rows % args.order.num_experts == 0, "{}: {} of {}", op,
              args.file.spec().to_string(), args.order.num_experts);
  check_spec(op, {args.file.dtype(), {rows, width}}, {args.product});
  const bool are_there = std::ranges::all_of(
      args.order.columns, [&](std::int64_t at) { return at >= 0 && at < args.file.dim(1); });
  ATOLL_CHECK(are_there, "{}: columns that {} lacks", op, args.file.spec().to_string());
}

}  // namespace

void order_factor(Run& run, double scale, const FactorOrder& order, Tensor factor, Tensor to) {
  const OrderArgs args = {scale, order, factor, to};
  check("order_factor", args);
  dispatch<OrderArgs>("order_factor", kForward, run, args, cost_of({to, to}));
}

void order_factor_backward(Run& run, double scale, const FactorOrder& order, Tensor dto,
                           Tensor dfactor) {
  const OrderArgs args = {scale, order, dfactor, dto};
  check("order_factor_backward", args);
  dispatch<OrderArgs>("order_factor_backward", kBackward, run, args, cost_of({dto, dto, dto}));
}

}  // namespace atl::ops
