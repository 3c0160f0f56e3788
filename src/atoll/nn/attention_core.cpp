#include "atoll/nn/attention_core.h"

#include "atoll/ops/attention/attention_sinks.h"

namespace atl::nn {

namespace {

ops::AttentionMask mask_of(const AttentionCore::Setup& setup, const Batch* batch) {
  return {.window = setup.window, .positions = batch == nullptr ? Tensor() : batch->positions};
}

}  // namespace

void AttentionCore::Setup::add_sinks(Run& run, const Tensor& out, const Tensor& lse) const {
  if (sinks.defined()) ops::attention_sinks(run, heads, sinks, out, lse);
}

void AttentionCore::Setup::backward_sinks(Run& run, const Tensor& out, const Tensor& lse,
                                          const Tensor& dout) const {
  if (sinks.defined()) ops::attention_sinks_backward(run, heads, sinks, out, lse, dout, dsinks);
}

AttentionCore::Footprint WholeAttention::plan(const Setup& setup, const Spec& qkv) const {
  const Spec lse = {compute_dtype(qkv.dtype),
                    {qkv.shape.dim(0), setup.heads.num_heads, qkv.shape.dim(1)}};
  return {{lse}, ops::attention_scratch_bytes(setup.heads, qkv)};
}

void WholeAttention::forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                             const Tensor& out, std::span<const Tensor> kept) {
  ops::attention_forward(run, setup.heads, setup.scores(), mask_of(setup, batch), qkv, out,
                         kept[0]);
  setup.add_sinks(run, out, kept[0]);
}

void WholeAttention::backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                              const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                              const Tensor& dqkv) {
  ops::attention_backward(run, setup.heads, setup.scores(), mask_of(setup, batch), qkv, out,
                          kept[0], dout, dqkv);
  setup.backward_sinks(run, out, kept[0], dout);
}

}  // namespace atl::nn
