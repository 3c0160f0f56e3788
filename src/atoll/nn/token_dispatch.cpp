#include "atoll/nn/token_dispatch.h"

#include "atoll/ops/routing/expert_rows.h"

namespace atl::nn {

TokenDispatch::Footprint WholeDispatch::plan(const Setup& setup, const Spec& x,
                                             std::int64_t /*most*/) const {
  ATOLL_CHECK_EQ(setup.num_here, setup.num_experts);
  return {.rows = x.shape.dim(0) * setup.top_k, .kept = {}, .scratch = 0};
}

void WholeDispatch::begin(Run& /*run*/, const Setup& /*setup*/, const Choices& /*choices*/) {}

TokenDispatch::Rows WholeDispatch::rows(const Choices& choices) const {
  return {choices.sources.num_elements(), choices.offsets};
}

void WholeDispatch::to_experts(Run& run, const Choices& choices, const Tensor& x,
                               const Tensor& rows) {
  ops::gather_rows(run, x, choices.sources, rows);
}

void WholeDispatch::from_experts(Run& run, const Choices& choices, const Tensor& rows,
                                 const Tensor& weights, const Tensor& y) {
  ops::combine_rows(run, rows, choices.places, weights, y);
}

void WholeDispatch::weigh(Run& run, const Choices& choices, const Tensor& weights, const Tensor& dh,
                          const Tensor& h, const Tensor& d, const Tensor& dweights) {
  ops::weigh_rows(run, weights, choices.sources, dh, h, d, dweights);
}

}  // namespace atl::nn
