#include "atoll/ops/codes/codes.h"

#include "atoll/ops/codes/cuda.h"
#include "atoll/ops/codes/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

constexpr Implementation<EncodeCodes> kEncode[] = {
    {"cuda", cuda::encode_codes},
    {"ref",
     [](Run& run, const EncodeCodes& a) { return serve_host(run, [&] { ref::encode_codes(a); }); }},
};

constexpr Implementation<DecodeCodes> kDecode[] = {
    {"cuda", cuda::decode_codes},
    {"ref",
     [](Run& run, const DecodeCodes& a) { return serve_host(run, [&] { ref::decode_codes(a); }); }},
};

void check_codes(const char* op, int bits, const Tensor& pieces, const Tensor& codes) {
  ATOLL_CHECK(bits == 4 || bits == 8, "{}: {} bits", op, bits);
  ATOLL_CHECK(
      pieces.dtype() == Dtype::kI64 && pieces.shape().rank() == 2 && pieces.dim(1) == kPieceColumns,
      "{}: pieces are {}", op, pieces.spec().to_string());
  ATOLL_CHECK(codes.dtype() == Dtype::kU8, "{}: codes are {}", op, codes.spec().to_string());
}

}  // namespace

void encode_codes(Run& run, const EncodeCodes& args) {
  check_codes("encode_codes", args.bits, args.pieces, args.codes);
  ATOLL_CHECK(!args.residual.defined() || !args.minus.defined(),
              "encode_codes: residual and minus");
  dispatch<EncodeCodes>("encode_codes", kEncode, run, args,
                        cost_of({args.x, args.minus, args.residual, args.residual, args.codes}));
}

void decode_codes(Run& run, const DecodeCodes& args) {
  check_codes("decode_codes", args.bits, args.pieces, args.codes);
  ATOLL_CHECK(args.sources >= 1, "decode_codes: {} sources", args.sources);
  dispatch<DecodeCodes>("decode_codes", kDecode, run, args, cost_of({args.codes, args.to}));
}

}  // namespace atl::ops
