#include "atoll/ops/codes/signs.h"

#include "atoll/ops/codes/cuda_signs.h"
#include "atoll/ops/codes/ref_signs.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

struct AddScaled {
  Tensor pieces;
  float scale;
  Placed from, to;
};
struct Sketch {
  Tensor x;
  std::span<float> sums;
};

constexpr Implementation<EncodeSigns> kEncode[] = {
    {"cuda", cuda::encode_signs},
    {"ref",
     [](Run& run, const EncodeSigns& a) { return serve_host(run, [&] { ref::encode_signs(a); }); }},
};
constexpr Implementation<ApplySigns> kApply[] = {
    {"cuda", cuda::apply_signs},
    {"ref",
     [](Run& run, const ApplySigns& a) { return serve_host(run, [&] { ref::apply_signs(a); }); }},
};
constexpr Implementation<ZeroOneStep> kZeroOne[] = {
    {"cuda", cuda::zero_one_step},
    {"ref", [](Run& run,
               const ZeroOneStep& a) { return serve_host(run, [&] { ref::zero_one_step(a); }); }},
};
constexpr Implementation<AddScaled> kAddScaled[] = {
    {"cuda",
     [](Run& run, const AddScaled& a) {
       return cuda::add_scaled(run, a.pieces, a.scale, a.from, a.to);
     }},
    {"ref",
     [](Run& run, const AddScaled& a) {
       return serve_host(run, [&] { ref::add_scaled(a.pieces, a.scale, a.from, a.to); });
     }},
};
constexpr Implementation<Sketch> kSketch[] = {
    {"cuda", [](Run& run, const Sketch& a) { return cuda::sketch(run, a.x, a.sums); }},
    {"ref",
     [](Run& run, const Sketch& a) { return serve_host(run, [&] { ref::sketch(a.x, a.sums); }); }},
};

void check_pieces(const char* op, const Tensor& pieces) {
  ATOLL_CHECK(
      pieces.dtype() == Dtype::kI64 && pieces.shape().rank() == 2 && pieces.dim(1) == kSignColumns,
      "{}: pieces are {}", op, pieces.spec().to_string());
}

}  // namespace

void encode_signs(Run& run, const EncodeSigns& args) {
  check_pieces("encode_signs", args.pieces);
  dispatch<EncodeSigns>("encode_signs", kEncode, run, args,
                        cost_of({args.v.tensor, args.v.tensor, args.residual.tensor,
                                 args.residual.tensor, args.residual.tensor, args.residual.tensor,
                                 args.grads, args.values, args.anchor, args.sent.codes}));
}

void apply_signs(Run& run, const ApplySigns& args) {
  check_pieces("apply_signs", args.pieces);
  dispatch<ApplySigns>("apply_signs", kApply, run, args,
                       cost_of({args.v.tensor, args.m.tensor, args.x,
                                args.anchor.defined() ? args.anchor : args.x}));
}

void zero_one_step(Run& run, const ZeroOneStep& args) {
  check_pieces("zero_one_step", args.pieces);
  dispatch<ZeroOneStep>("zero_one_step", kZeroOne, run, args,
                        cost_of({args.x, args.x, args.grads, args.m, args.m, args.v, args.v}));
}

void add_scaled(Run& run, const Tensor& pieces, float scale, const Placed& from, const Placed& to) {
  check_pieces("add_scaled", pieces);
  dispatch<AddScaled>("add_scaled", kAddScaled, run, {pieces, scale, from, to},
                      cost_of({from.tensor, to.tensor, to.tensor}));
}

void sketch(Run& run, const Tensor& x, std::span<float> sums) {
  const std::int64_t numbers = std::ssize(sums);
  ATOLL_CHECK(numbers > 0 && numbers % 64 == 0 && kSketchPartials % numbers == 0,
              "a sketch of {} numbers", numbers);
  dispatch<Sketch>("sketch", kSketch, run, {x, sums}, cost_of({x}));
}

}  // namespace atl::ops
