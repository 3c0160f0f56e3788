#include "atoll/ops/codes/cuda_signs.h"

#include <algorithm>

#include "atoll/ops/codes/signs_kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

static_assert(kAddsNothing == static_cast<int>(EncodeSigns::Adds::kNothing) &&
              kAddsGradients == static_cast<int>(EncodeSigns::Adds::kGradients) &&
              kAddsMoves == static_cast<int>(EncodeSigns::Adds::kMoves) &&
              kAddsRanks == static_cast<int>(EncodeSigns::Adds::kRanks));

template <typename Kernel>
void launch_pieces(Run& run, const Tensor& pieces, std::uint32_t shared, const Kernel& kernel) {
  if (pieces.dim(0) == 0) return;
  launch<SignsKernels>(run,
                       {.blocks_x = static_cast<std::uint32_t>(pieces.dim(0)),
                        .threads = Kernel::kMaxThreads,
                        .shared_bytes = shared},
                       kernel);
}

template <int kAdds>
void encode(Run& run, const EncodeSigns& a) {
  launch_pieces(
      run, a.pieces, kSignShared,
      EncodeSignsKernel<kAdds>{.pieces = input<std::int64_t>(a.pieces),
                               .codes = output<std::uint8_t>(a.codes),
                               .v = input<float>(a.v.tensor),
                               .residual = output<float>(a.residual.tensor),
                               .grads = input<float>(a.grads),
                               .values = input<float>(a.values),
                               .anchor = input<float>(a.anchor),
                               .m = input<float>(a.m),
                               .sent = input<std::uint8_t>(a.sent.codes),
                               .units = a.units,
                               .v_column = static_cast<std::int32_t>(a.v.column),
                               .residual_column = static_cast<std::int32_t>(a.residual.column),
                               .num_sources = static_cast<std::int32_t>(a.sent.sources),
                               .byte_first = a.sent.byte_first,
                               .source_bytes = a.sent.source_bytes,
                               .residual_share = a.residual_share,
                               .beta1 = a.beta1,
                               .rest = a.rest,
                               .per_moved = a.per_moved,
                               .share = a.share});
}

template <bool kAnchors>
void apply(Run& run, const ApplySigns& a) {
  launch_pieces(run, a.pieces, 0,
                ApplySignsKernel<kAnchors>{.pieces = input<std::int64_t>(a.pieces),
                                           .codes = input<std::uint8_t>(a.codes),
                                           .v = input<float>(a.v.tensor),
                                           .m = output<float>(a.m.tensor),
                                           .x = output<float>(a.x),
                                           .anchor = input<float>(a.anchor),
                                           .units = a.units,
                                           .v_column = static_cast<std::int32_t>(a.v.column),
                                           .m_column = static_cast<std::int32_t>(a.m.column),
                                           .step_size = a.step_size,
                                           .decay = a.decay});
}

template <bool kSums>
void step(Run& run, const ZeroOneStep& a) {
  launch_pieces(run, a.pieces, 0,
                ZeroOneKernel<kSums>{.pieces = input<std::int64_t>(a.pieces),
                                     .x = output<float>(a.x),
                                     .grads = input<float>(a.grads),
                                     .m = output<float>(a.m),
                                     .v = output<float>(a.v),
                                     .anchor = output<float>(a.anchor),
                                     .units = a.units,
                                     .is_first = a.is_first ? 1 : 0,
                                     .beta1 = a.beta1,
                                     .beta2 = a.beta2,
                                     .rest1 = a.rest1,
                                     .rest2 = a.rest2,
                                     .grad_scale = a.grad_scale,
                                     .step_size = a.step_size,
                                     .decay = a.decay});
}

}  // namespace

Declined encode_signs(Run& run, const EncodeSigns& args) {
  return serve_gpu(run, [&] {
    switch (args.adds) {
      case EncodeSigns::Adds::kNothing:
        return encode<kAddsNothing>(run, args);
      case EncodeSigns::Adds::kGradients:
        return encode<kAddsGradients>(run, args);
      case EncodeSigns::Adds::kMoves:
        return encode<kAddsMoves>(run, args);
      case EncodeSigns::Adds::kRanks:
        return encode<kAddsRanks>(run, args);
    }
  });
}

Declined apply_signs(Run& run, const ApplySigns& args) {
  return serve_gpu(
      run, [&] { args.anchor.defined() ? apply<true>(run, args) : apply<false>(run, args); });
}

Declined zero_one_step(Run& run, const ZeroOneStep& args) {
  return serve_gpu(run, [&] { args.sums ? step<true>(run, args) : step<false>(run, args); });
}

Declined add_scaled(Run& run, const Tensor& pieces, float scale, const Placed& from,
                    const Placed& to) {
  return serve_gpu(run, [&] {
    launch_pieces(run, pieces, 0,
                  AddScaledKernel{input<std::int64_t>(pieces), input<float>(from.tensor),
                                  output<float>(to.tensor), static_cast<std::int32_t>(from.column),
                                  static_cast<std::int32_t>(to.column), scale});
  });
}

Declined sketch(Run& run, const Tensor& x, std::span<float> sums) {
  return serve_gpu(run, [&] {
    const std::int64_t numbers = std::ssize(sums), n = x.num_elements();
    const std::int64_t apart = sketch_rows_apart(n, numbers);
    const std::int64_t blocks =
        std::max<std::int64_t>(num_blocks(num_blocks(n, numbers), apart), 1);
    const auto floats = [](std::int64_t count) {
      return static_cast<std::size_t>(count) * sizeof(float);
    };
    const auto room = dynamic_cast<atl::cuda::KernelStream&>(*run.stream)
                          .room(run.stream->device(), floats((blocks + 1) * numbers));
    auto* const at = static_cast<float*>(room.device);
    const Global<float> made = {at, numbers}, partials = {at + numbers, blocks * numbers};
    launch<SignsKernels>(run, thread_a_pack(partials.size, 1, SketchPartials::kMaxThreads),
                         SketchPartials{input<float>(x), partials, numbers, apart});
    launch<SignsKernels>(run, thread_a_pack(numbers, 1, SketchSums::kMaxThreads),
                         SketchSums{{partials.data, partials.size}, made});
    run.stream->copy(room.host, room.device, floats(numbers));
    run.stream->synchronize();
    std::copy_n(static_cast<const float*>(room.host), sums.size(), sums.begin());
  });
}

}  // namespace atl::ops::cuda
