#include "atoll/ops/codes/cuda.h"

#include "atoll/ops/codes/kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

template <typename Kernel>
void launch_pieces(Run& run, const Tensor& pieces, const Kernel& kernel) {
  if (pieces.dim(0) == 0) return;
  launch<CodesKernels>(
      run, {.blocks_x = static_cast<std::uint32_t>(pieces.dim(0)), .threads = Kernel::kMaxThreads},
      kernel);
}

template <int kBits>
void encode(Run& run, const EncodeCodes& a) {
  launch_pieces(run, a.pieces,
                EncodeCodesKernel<kBits>{input<std::int64_t>(a.pieces), input<float>(a.x),
                                         input<float>(a.minus), output<float>(a.residual),
                                         output<std::uint8_t>(a.codes), a.x_first});
}

template <int kBits>
void decode(Run& run, const DecodeCodes& a) {
  launch_pieces(
      run, a.pieces,
      DecodeCodesKernel<kBits>{input<std::int64_t>(a.pieces), input<std::uint8_t>(a.codes),
                               output<float>(a.to), a.to_first, a.byte_first, a.source_bytes,
                               static_cast<std::int32_t>(a.sources), a.adds ? 1 : 0});
}

}  // namespace

Declined encode_codes(Run& run, const EncodeCodes& args) {
  return serve_gpu(run, [&] { args.bits == 4 ? encode<4>(run, args) : encode<8>(run, args); });
}

Declined decode_codes(Run& run, const DecodeCodes& args) {
  return serve_gpu(run, [&] { args.bits == 4 ? decode<4>(run, args) : decode<8>(run, args); });
}

}  // namespace atl::ops::cuda
