#include "atoll/ops/attention/attention_sinks.h"
#include "atoll/ops/attention/checks.h"
#include "atoll/ops/attention/ref_sinks.h"

namespace atl::ops {

namespace {

struct SinksArgs {
  HeadLayout heads;
  Tensor sinks, out, lse, dout, dsinks;
};

// What a sink adds is one pass over the attended values: it is not worth a kernel of its own.
constexpr Implementation<SinksArgs> kForward[] = {
    {"ref", [](Run& run, const SinksArgs& a) {
       return serve_any_storage(run, a.out.dtype(), [&]<typename T>(T) {
         ref::attention_sinks<T>(run, a.heads, a.sinks, a.out, a.lse);
       });
     }}};

constexpr Implementation<SinksArgs> kBackward[] = {
    {"ref", [](Run& run, const SinksArgs& a) {
       return serve_any_storage(run, a.out.dtype(), [&]<typename T>(T) {
         ref::attention_sinks_backward<T>(run, a.heads, a.sinks, a.out, a.lse, a.dout, a.dsinks);
       });
     }}};

void check_sinks(const char* op, const SinksArgs& args) {
  const std::int64_t H = args.heads.num_heads;
  ATOLL_CHECK(args.out.shape().rank() == 3 && args.out.dim(2) == args.heads.query_width(),
              "{}: {} where (B, T, {}) is needed", op, args.out.spec().to_string(),
              args.heads.query_width());
  check_spec(op, {args.sinks.dtype(), {H}}, {args.sinks});
  check_spec(op, {compute_dtype(args.out.dtype()), {args.out.dim(0), H, args.out.dim(1)}},
             {args.lse});
}

}  // namespace

void attention_sinks(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out, Tensor lse) {
  const char* op = "attention_sinks";
  const SinksArgs args = {.heads = heads, .sinks = sinks, .out = out, .lse = lse};
  check_sinks(op, args);
  dispatch<SinksArgs>(op, kForward, run, args, cost_of({out, out, lse}));
}

void attention_sinks_backward(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out,
                              Tensor lse, Tensor dout, Tensor dsinks) {
  const char* op = "attention_sinks_backward";
  const SinksArgs args = {heads, sinks, out, lse, dout, dsinks};
  check_sinks(op, args);
  check_spec(op, out.spec(), {dout});
  check_spec(op, {compute_dtype(out.dtype()), {heads.num_heads}}, {dsinks});
  dispatch<SinksArgs>(op, kBackward, run, args, cost_of({out, dout, lse}));
}

}  // namespace atl::ops
