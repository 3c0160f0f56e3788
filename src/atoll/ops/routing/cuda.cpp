#include "atoll/ops/routing/cuda.h"

#include "atoll/ops/cuda/per_step.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/routing/cuda_expert_rows.h"
#include "atoll/ops/routing/kernels.cuh"

namespace atl::ops::cuda {

namespace {

Spec counts_spec(std::int64_t num_experts) {
  return {Dtype::kF64, {num_experts}};
}

// A block takes 32 tokens, or more where that were more than 256 blocks: one block adds up what
// they leave.
RowBlocks partial_blocks(std::int64_t tokens) {
  const std::int64_t each = std::max<std::int64_t>(32, num_blocks(tokens, 256));
  return {each, num_blocks(tokens, each)};
}
Spec partials_spec(std::int64_t tokens, std::int64_t num_experts) {
  return {Dtype::kF32,
          {partial_blocks(tokens).count, RouterPartials::num_sums(static_cast<int>(num_experts))}};
}

// For a run on a GPU.
void count(Run& run, Tensor experts, Tensor counts) {
  if (experts.num_elements() == 0) return run.stream->fill_zero(counts.raw(), counts.bytes());
  Run inner = run;
  const Tensor parts =
      inner.take_scratch(choice_counts_spec(experts.num_elements(), counts.dim(0)));
  count_parts(run, experts, parts);
  launch<RoutingKernels>(run, thread_a_pack(counts.num_elements(), 1, SumCounts::kMaxThreads),
                         SumCounts{input<std::int32_t>(parts), output<double>(counts),
                                   static_cast<int>(parts.dim(0))});
}

}  // namespace

Declined route_tokens(Run& run, bool normalize, Tensor logits, Tensor experts, Tensor weights) {
  if (logits.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    if (logits.dim(0) == 0) return;
    launch<RoutingKernels>(
        run, warp_a_row(logits.dim(0), RouteTokens::kMaxThreads),
        RouteTokens{input<float>(logits), output<std::int32_t>(experts), output<float>(weights),
                    logits.dim(0), static_cast<int>(logits.dim(1)),
                    static_cast<int>(experts.dim(1)), normalize});
  });
}

Declined route_tokens_backward(Run& run, bool normalize, const RouterLosses& losses, Tensor logits,
                               Tensor experts, Tensor weights, Tensor dweights, Tensor dlogits) {
  if (logits.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    const std::int64_t num_experts = logits.dim(1);
    if (logits.dim(0) == 0) return;
    Run inner = run;
    Tensor counts = losses.counts;
    if (losses.balance != 0 && !counts.defined()) {
      counts = inner.take_scratch(counts_spec(num_experts));
      count(inner, experts, counts);
    }
    if (losses.balance == 0) counts = {};
    const auto scales = per_step(run, [balance = losses.balance, z = losses.z,
                                       experts = static_cast<double>(num_experts)](const Run& now) {
      return RouterScales{static_cast<float>(balance * now.loss_scale * experts),
                          static_cast<float>(z * now.loss_scale)};
    });
    launch<RoutingKernels>(
        run, warp_a_row(logits.dim(0), RouteTokensBackward::kMaxThreads),
        RouteTokensBackward{input<float>(logits), input<std::int32_t>(experts),
                            input<float>(weights), input<float>(dweights), input<double>(counts),
                            output<float>(dlogits), logits.dim(0), static_cast<int>(num_experts),
                            static_cast<int>(experts.dim(1)), normalize, scales});
  });
}

Declined count_choices(Run& run, Tensor experts, Tensor counts) {
  return serve_gpu(run, [&] { count(run, experts, counts); });
}

Declined add_router_sums(Run& run, Tensor logits, Tensor experts, Tensor places, Tensor sums,
                         Tensor counts) {
  if (logits.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    const std::int64_t tokens = logits.dim(0);
    const auto num_experts = static_cast<int>(logits.dim(1));
    const auto k = static_cast<int>(experts.dim(1));
    if (tokens == 0) return;
    const RowBlocks cut = partial_blocks(tokens);
    Run inner = run;
    const Tensor partials = inner.take_scratch(partials_spec(tokens, num_experts));
    launch<RoutingKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(cut.count),
         .threads = RouterPartials::kMaxThreads,
         .shared_bytes = static_cast<std::uint32_t>(RouterPartials::shared_bytes(num_experts))},
        RouterPartials{input<float>(logits), input<std::int32_t>(experts),
                       input<std::int32_t>(places), output<float>(partials), tokens,
                       cut.rows_per_block, num_experts, k});
    launch<RoutingKernels>(
        run, {.threads = AddRouterSums::kMaxThreads, .shared_bytes = AddRouterSums::shared_bytes()},
        AddRouterSums{input<float>(partials), input<double>(counts), output<double>(sums), tokens,
                      static_cast<int>(cut.count), num_experts, k});
  });
}

std::size_t routing_scratch_bytes(const Shape& choices, std::int64_t num_experts) {
  const std::size_t counting =
      align_up(counts_spec(num_experts).bytes()) +
      align_up(choice_counts_spec(choices.num_elements(), num_experts).bytes());
  return std::max(counting, align_up(partials_spec(choices.dim(0), num_experts).bytes()));
}

}  // namespace atl::ops::cuda
