#include "atoll/nn/mixture_of_experts.h"

#include <algorithm>
#include <cmath>

#include "atoll/ops/activation.h"
#include "atoll/ops/expert_rows.h"
#include "atoll/ops/grouped_matmul.h"
#include "atoll/ops/routing.h"

namespace atl::nn {

using ops::Transpose;

namespace {

// What forward keeps: the router's logits, (T, E); each token's experts and weights, (T, K); their
// rows, (T, K); the choice of each row, (T K); where each expert's rows begin, (E + 1); what the
// experts' first products gave, (T K, 2F).
enum Kept { kLogits, kExperts, kWeights, kPlaces, kSources, kOffsets, kHidden };
// What B leaves for W: gradients of the logits and of the first products, and the activations
// times their weights, (T K, F).
enum Owed { kDlogits, kDhidden, kActivated };

Tensor flat(const Tensor& x) {
  return x.reshaped({x.shape().num_rows(), x.dim(-1)});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const Options& options, Param router, Param gate_up, Param down,
                                   ExpertLoad* load)
    : options_(options),
      router_(std::move(router)),
      gate_up_(std::move(gate_up)),
      down_(std::move(down)),
      load_(load) {
  const std::int64_t E = options_.num_experts;
  const Shape& in = gate_up_.spec.shape;
  const Shape& out = down_.spec.shape;
  ATOLL_CHECK(E >= 1 && options_.top_k >= 1 && options_.top_k <= E, "{} of {} experts",
              options_.top_k, E);
  ATOLL_CHECK(in.dim(0) == E * 2 * out.dim(1) && out.dim(0) == E * in.dim(1) &&
                  router_.spec.shape == Shape({E, in.dim(1)}),
              "{} experts of {}, {} and {}", E, router_.spec.to_string(), gate_up_.spec.to_string(),
              down_.spec.to_string());
  ATOLL_CHECK_EQ(load_->num_experts(), E);
}

MixtureOfExperts::Sizes MixtureOfExperts::sizes(const Spec& x) const {
  const std::int64_t tokens = x.shape.num_rows();
  return {tokens, tokens * options_.top_k, x.shape.dim(-1), down_.spec.shape.dim(1)};
}

std::int64_t MixtureOfExperts::capacity(const Run& run, const Sizes& size) const {
  // A token chooses an expert once.
  if (options_.capacity_factor == 0 || !run.training) return size.tokens;
  const double share = static_cast<double>(size.rows) / static_cast<double>(options_.num_experts);
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(options_.capacity_factor * share)), 1, size.tokens);
}

std::size_t MixtureOfExperts::product_scratch_bytes(const Spec& x) const {
  const Sizes size = sizes(x);
  const std::int64_t E = options_.num_experts;
  const Spec tokens = {x.dtype, {size.tokens, size.width}};
  const Spec rows = {x.dtype, {size.rows, size.width}};
  const Spec hidden = {x.dtype, {size.rows, 2 * size.hidden}};
  const Spec activated = {x.dtype, {size.rows, size.hidden}};
  const Spec logits = {compute_dtype(x.dtype), {size.tokens, E}};
  std::size_t bytes = std::max({ops::matmul_scratch_bytes(Transpose::kNT, tokens, router_.spec),
                                ops::matmul_scratch_bytes(Transpose::kNN, logits, router_.spec),
                                ops::matmul_scratch_bytes(Transpose::kTN, logits, tokens),
                                ops::grouped_matmul_scratch_bytes(hidden, rows, gate_up_.spec, E),
                                ops::grouped_matmul_scratch_bytes(rows, activated, down_.spec, E)});
  if (gate_up_.as_int8) {
    bytes = std::max({bytes, ops::grouped_matmul_int8_scratch_bytes(rows, gate_up_.spec.shape, E),
                      ops::grouped_matmul_int8_scratch_bytes(activated, down_.spec.shape, E)});
  }
  return bytes;
}

Footprint MixtureOfExperts::plan(Spec x) const {
  ATOLL_CHECK(x.shape.dim(-1) == router_.spec.shape.dim(1) && x.dtype == router_.spec.dtype,
              "{} of {} applied to {}", router_.name, router_.spec.to_string(), x.to_string());
  const Sizes size = sizes(x);
  const Dtype compute = compute_dtype(x.dtype);
  const Spec logits = {compute, {size.tokens, options_.num_experts}};
  const Shape choices = {size.tokens, options_.top_k};
  const Spec hidden = {x.dtype, {size.rows, 2 * size.hidden}};
  const Spec activated = {x.dtype, {size.rows, size.hidden}};
  Footprint footprint;
  footprint.y = x;
  footprint.need_x = kForWeight;
  footprint.need_dy = kForInput | kForWeight;
  footprint.kept = {logits,
                    {Dtype::kI32, choices},
                    {compute, choices},
                    {Dtype::kI32, choices},
                    {Dtype::kI32, {size.rows}},
                    {Dtype::kI32, {options_.num_experts + 1}},
                    hidden};
  footprint.owed = {logits, hidden, activated};
  // The experts' rows, what is within them, and in B the gradients of the weights.
  footprint.scratch_bytes = align_up(Spec{x.dtype, {size.rows, size.width}}.bytes()) +
                            align_up(activated.bytes()) + align_up(Spec{compute, choices}.bytes()) +
                            product_scratch_bytes(x);
  return footprint;
}

void MixtureOfExperts::product(Run& run, const Param& weight, Tensor a, Tensor offsets, Tensor c) {
  if (weight.as_int8)
    ops::grouped_matmul_int8(run, a, weight.int8, offsets, c);
  else
    ops::grouped_matmul(run, Transpose::kNT, a, weight.value, offsets, c);
}

void MixtureOfExperts::forward(Run& run, const Pass& pass) {
  const auto& kept = pass.kept;
  const Sizes size = sizes(pass.x.spec());
  const Tensor x = flat(pass.x);
  ops::matmul(run, Transpose::kNT, x, router_.value, kept[kLogits]);
  ops::route_tokens(run, options_.normalize, kept[kLogits], kept[kExperts], kept[kWeights]);
  ops::assign_rows(run, kept[kExperts], capacity(run, size), kept[kPlaces], kept[kSources],
                   kept[kOffsets]);
  Run inner = run;
  const Tensor rows = inner.take_scratch({x.dtype(), {size.rows, size.width}});
  const Tensor h = inner.take_scratch({x.dtype(), {size.rows, size.hidden}});
  ops::gather_rows(inner, x, kept[kSources], rows);
  product(inner, gate_up_, rows, kept[kOffsets], kept[kHidden]);
  ops::swiglu_forward(inner, kept[kHidden], h);
  product(inner, down_, h, kept[kOffsets], rows);
  ops::combine_rows(inner, rows, kept[kPlaces], kept[kWeights], flat(pass.y));
}

void MixtureOfExperts::backward_input(Run& run, const Pass& pass) {
  const auto& kept = pass.kept;
  const auto& owed = pass.owed;
  const Sizes size = sizes(pass.dy.spec());
  Run inner = run;
  const Tensor rows = inner.take_scratch({pass.dy.dtype(), {size.rows, size.width}});
  const Tensor dh = inner.take_scratch(owed[kActivated].spec());
  const Tensor dweights = inner.take_scratch(kept[kWeights].spec());
  ops::gather_rows(inner, flat(pass.dy), kept[kSources], rows);
  ops::grouped_matmul(inner, Transpose::kNN, rows, down_.value, kept[kOffsets], dh);
  ops::swiglu_backward(inner, kept[kHidden], dh, owed[kDhidden], owed[kActivated]);
  ops::weigh_rows(inner, kept[kWeights], kept[kSources], dh, owed[kActivated], owed[kDhidden],
                  dweights);
  ops::route_tokens_backward(
      inner, options_.normalize,
      {.balance = options_.balance_loss * run.loss_scale, .z = options_.z_loss * run.loss_scale},
      kept[kLogits], kept[kExperts], kept[kWeights], dweights, owed[kDlogits]);
  ops::grouped_matmul(inner, Transpose::kNN, owed[kDhidden], gate_up_.value, kept[kOffsets], rows);
  ops::combine_rows(inner, rows, kept[kPlaces], {}, flat(pass.dx));
  ops::matmul(inner, Transpose::kNN, owed[kDlogits], router_.value, flat(pass.dx), {},
              /*accumulate=*/true);
  // Here and not in forward, which recompute calls twice.
  ops::add_router_sums(inner, kept[kLogits], kept[kExperts], kept[kPlaces], load_->tensor());
}

void MixtureOfExperts::backward_weight(Run& run, const Pass& pass) {
  const auto& kept = pass.kept;
  const auto& owed = pass.owed;
  const Sizes size = sizes(pass.x.spec());
  if (!router_.frozen) {
    ops::matmul(run, Transpose::kTN, owed[kDlogits], flat(pass.x), router_.grad, {},
                /*accumulate=*/true);
  }
  Run inner = run;
  const Tensor rows = inner.take_scratch({pass.x.dtype(), {size.rows, size.width}});
  if (!gate_up_.frozen) {
    ops::gather_rows(inner, flat(pass.x), kept[kSources], rows);
    ops::grouped_matmul_tn(inner, owed[kDhidden], rows, kept[kOffsets], gate_up_.grad);
  }
  if (!down_.frozen) {
    ops::gather_rows(inner, flat(pass.dy), kept[kSources], rows);
    ops::grouped_matmul_tn(inner, rows, owed[kActivated], kept[kOffsets], down_.grad);
  }
}

void MixtureOfExperts::visit(ParamVisitor& visitor) {
  visitor.param(router_);
  visitor.param(gate_up_);
  visitor.param(down_);
}

}  // namespace atl::nn
