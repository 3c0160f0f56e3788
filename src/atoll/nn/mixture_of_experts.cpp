#include "atoll/nn/mixture_of_experts.h"

#include <algorithm>
#include <cmath>

#include "atoll/nn/waiting.h"
#include "atoll/ops/activation/activation.h"
#include "atoll/ops/clamped_swiglu/clamped_swiglu.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/group_bias/group_bias.h"
#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/packed/grouped.h"
#include "atoll/ops/routing/expert_rows.h"
#include "atoll/ops/routing/routing.h"
#include "atoll/ops/routing/scored_routing.h"

namespace atl::nn {

using ops::Transpose;

namespace {

// What forward keeps: the router's logits, (T, E); each token's experts and weights, (T, K); their
// rows, (T, K); the choice of each row, (T K); where each expert's rows begin, (E + 1); what the
// products of the experts here gave first, (R, 2F). What the dispatch keeps comes after these.
enum Kept { kLogits, kExperts, kWeights, kPlaces, kSources, kOffsets, kHidden, kNumKept };
// What B leaves for W: gradients of the logits and of the first products, and the activations
// times their weights, (R, F); where there are biases, the gradient of down's, (E' C).
enum Owed { kDlogits, kDhidden, kActivated, kDdownBias };

Tensor flat(const Tensor& x) {
  return x.reshaped({x.shape().num_rows(), x.dim(-1)});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const Options& options, Param router, Param gate_up, Param down,
                                   ExpertLoad* load, std::unique_ptr<TokenDispatch> dispatch,
                                   Biases biases, Param correction)
    : options_(options),
      router_(std::move(router)),
      gate_up_(std::move(gate_up)),
      down_(std::move(down)),
      biases_(std::move(biases)),
      correction_(std::move(correction)),
      load_(load),
      dispatch_(dispatch ? std::move(dispatch) : std::make_unique<WholeDispatch>()) {
  const std::int64_t E = options_.num_experts;
  const Shape& in = gate_up_.spec.shape;
  const Shape& out = down_.spec.shape;
  ATOLL_CHECK(E >= 1 && options_.top_k >= 1 && options_.top_k <= E, "{} of {} experts",
              options_.top_k, E);
  setup_ = {E, options_.top_k, out.dim(0) / in.dim(1)};
  ATOLL_CHECK(in.dim(0) == setup_.num_here * 2 * out.dim(1) &&
                  out.dim(0) == setup_.num_here * in.dim(1) &&
                  router_.spec.shape == Shape({E, in.dim(1)}),
              "{} experts of {}, {} and {}", E, router_.spec.to_string(), gate_up_.spec.to_string(),
              down_.spec.to_string());
  ATOLL_CHECK(!has_biases() || (biases_.router.spec.shape == Shape({E}) &&
                                biases_.gate_up.spec.shape == Shape({in.dim(0)}) &&
                                biases_.down.spec.shape == Shape({out.dim(0)})),
              "biases of {}, {} and {}", biases_.router.spec.to_string(),
              biases_.gate_up.spec.to_string(), biases_.down.spec.to_string());
  ATOLL_CHECK(correction_.name.empty() || correction_.spec.shape == Shape({E}), "{} of {}",
              correction_.name, correction_.spec.to_string());
  ATOLL_CHECK_EQ(load_->num_experts(), E);
  ATOLL_CHECK(options_.sequences == nullptr || options_.capacity_factor == 0,
              "a capacity of tokens that other ranks have");
}

MixtureOfExperts::Sizes MixtureOfExperts::sizes(const Spec& x) const {
  return {x.shape.num_rows(), plan_dispatch(x).rows, x.shape.dim(-1), down_.spec.shape.dim(1)};
}

std::int64_t MixtureOfExperts::capacity(bool training, std::int64_t tokens) const {
  // A token chooses an expert once.
  if (options_.capacity_factor == 0 || !training) return tokens;
  const double share =
      static_cast<double>(tokens * options_.top_k) / static_cast<double>(options_.num_experts);
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(options_.capacity_factor * share)), 1, tokens);
}

TokenDispatch::Footprint MixtureOfExperts::plan_dispatch(const Spec& x) const {
  const std::int64_t tokens = x.shape.num_rows();
  return dispatch_->plan(setup_, {x.dtype, {tokens, x.shape.dim(-1)}},
                         capacity(/*training=*/true, tokens));
}

TokenDispatch::Choices MixtureOfExperts::choices_of(std::span<const Tensor> kept) {
  return {kept[kPlaces], kept[kSources], kept[kOffsets], kept.subspan(kNumKept)};
}

std::size_t MixtureOfExperts::product_scratch_bytes(const Spec& x) const {
  const Sizes size = sizes(x);
  const std::int64_t E = options_.num_experts, here = setup_.num_here;
  const Spec tokens = {x.dtype, {size.tokens, size.width}};
  const Spec rows = {x.dtype, {size.rows, size.width}};
  const Spec hidden = {x.dtype, {size.rows, 2 * size.hidden}};
  const Spec activated = {x.dtype, {size.rows, size.hidden}};
  const Spec logits = {compute_dtype(x.dtype), {size.tokens, E}};
  const DeviceKind device = options_.device;
  std::size_t bytes =
      std::max({ops::matmul_scratch_bytes(Transpose::kNT, tokens, router_.spec, device),
                ops::matmul_scratch_bytes(Transpose::kNN, logits, router_.spec, device),
                ops::matmul_scratch_bytes(Transpose::kTN, logits, tokens, device),
                ops::grouped_matmul_scratch_bytes(hidden, rows, gate_up_.spec, here, device),
                ops::grouped_matmul_scratch_bytes(rows, activated, down_.spec, here, device)});
  if (has_biases()) bytes = std::max(bytes, ops::column_sum_scratch_bytes(logits));
  bytes = std::max(bytes, adapter_scratch_bytes(size.rows));
  if (gate_up_.is_packed()) {
    bytes = std::max(bytes, ops::grouped_matmul_packed_scratch_bytes(
                                hidden, rows, gate_up_.spec.shape, setup_.num_here));
  }
  if (down_.is_packed()) {
    bytes = std::max(bytes, ops::grouped_matmul_packed_scratch_bytes(
                                rows, activated, down_.spec.shape, setup_.num_here));
  }
  if (gate_up_.as_int8) {
    bytes =
        std::max({bytes, ops::grouped_matmul_int8_scratch_bytes(rows, gate_up_.spec.shape, here),
                  ops::grouped_matmul_int8_scratch_bytes(activated, down_.spec.shape, here)});
  }
  return bytes;
}

std::size_t MixtureOfExperts::adapter_scratch_bytes(std::int64_t rows) const {
  std::size_t bytes = 0;
  for (const auto* adapter : {&of_gate_up_, &of_down_}) {
    if (*adapter) bytes = std::max(bytes, (*adapter)->scratch_bytes(rows));
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
                    {Dtype::kI32, {choices.num_elements()}},
                    {Dtype::kI32, {options_.num_experts + 1}},
                    hidden};
  const TokenDispatch::Footprint dispatch = plan_dispatch(x);
  footprint.kept.insert(footprint.kept.end(), dispatch.kept.begin(), dispatch.kept.end());
  footprint.owed = {logits, hidden, activated};
  const Spec rows = {x.dtype, {size.rows, size.width}};
  const Spec weights = {compute, choices};
  std::size_t of_bias = 0;
  if (adds_down_bias()) {
    footprint.owed.push_back({compute, biases_.down.spec.shape});
    // Biases of rows, what the dispatch scales beside them, and their part of dweights.
    of_bias = 2 * align_up(rows.bytes()) + align_up(weights.bytes());
  }
  // The experts' rows, what is within them, and in B the gradients of the weights.
  footprint.scratch_bytes =
      align_up(rows.bytes()) + of_bias + align_up(activated.bytes()) + align_up(weights.bytes()) +
      align_up(Spec{Dtype::kF64, {options_.num_experts}}.bytes()) +
      std::max({product_scratch_bytes(x), dispatch.scratch,
                ops::routing_scratch_bytes(choices, options_.num_experts),
                ops::assign_rows_scratch_bytes(choices.num_elements(), options_.num_experts)});
  return footprint;
}

void MixtureOfExperts::product(Run& run, const Param& weight, Tensor a, Tensor offsets, Tensor c) {
  if (weight.is_packed())
    ops::grouped_matmul_packed(run, Transpose::kNT, a, weight.packed, offsets, c);
  else if (weight.as_int8)
    ops::grouped_matmul_int8(run, a, weight.int8, offsets, c);
  else
    ops::grouped_matmul(run, Transpose::kNT, a, weight.value, offsets, c);
}

void MixtureOfExperts::product_back(Run& run, const Param& weight, const Tensor& dy,
                                    const Tensor& offsets, const Tensor& dx) {
  if (weight.is_packed())
    ops::grouped_matmul_packed(run, Transpose::kNN, dy, weight.packed, offsets, dx);
  else
    ops::grouped_matmul(run, Transpose::kNN, dy, weight.value, offsets, dx);
}

void MixtureOfExperts::activate(Run& run, const Tensor& hidden, const Tensor& h) const {
  if (options_.swiglu_limit > 0)
    ops::clamped_swiglu_forward(run, options_.swiglu_limit, hidden, h);
  else
    ops::swiglu_forward(run, hidden, h);
}

void MixtureOfExperts::backward_activate(Run& run, const Tensor& hidden, const Tensor& dh,
                                         const Tensor& dhidden, const Tensor& activated) const {
  if (options_.swiglu_limit > 0)
    ops::clamped_swiglu_backward(run, options_.swiglu_limit, hidden, dh, dhidden, activated);
  else
    ops::swiglu_backward(run, hidden, dh, dhidden, activated);
}

// Each token's experts and weights, of its logits.
void MixtureOfExperts::choose(Run& run, std::span<const Tensor> kept) const {
  const ops::RouterForm& form = options_.router;
  if (has_plain_router()) {
    ops::route_tokens(run, form.normalize, kept[kLogits], kept[kExperts], kept[kWeights]);
  } else {
    ops::route_scored_tokens(run, form, kept[kLogits], correction_.value, kept[kExperts],
                             kept[kWeights]);
  }
}

void MixtureOfExperts::backward_router(Run& run, std::span<const Tensor> kept, const Tensor& counts,
                                       const Tensor& dweights, const Tensor& dlogits) const {
  const ops::RouterForm& form = options_.router;
  const ops::RouterLosses losses = {
      .balance = options_.balance_loss, .z = options_.z_loss, .counts = counts};
  if (has_plain_router()) {
    ops::route_tokens_backward(run, form.normalize, losses, kept[kLogits], kept[kExperts],
                               kept[kWeights], dweights, dlogits);
  } else {
    ops::route_scored_tokens_backward(run, form, losses, kept[kLogits], kept[kExperts],
                                      kept[kWeights], dweights, dlogits);
  }
}

void MixtureOfExperts::forward(Run& run, const Pass& pass) {
  const Tensor x = flat(pass.x);
  const Tensor y = flat(pass.y);
  const std::int64_t tokens = x.dim(0);
  if (run.training) return forward_tokens(run, x, y, pass.kept);
  // As many at once as there is room for wherever they go.
  const std::int64_t rows_of_one = dispatch_->plan(setup_, {x.dtype(), {1, x.dim(1)}}, 1).rows;
  const std::int64_t at_once = pass.kept[kHidden].dim(0) / rows_of_one;
  if (at_once >= tokens) return forward_tokens(run, x, y, pass.kept);
  std::vector<Tensor> kept(pass.kept.begin(), pass.kept.end());
  for (std::int64_t begin = 0; begin < tokens; begin += at_once) {
    const std::int64_t end = std::min(begin + at_once, tokens);
    for (const Kept of_tokens : {kLogits, kExperts, kWeights, kPlaces, kSources}) {
      const Tensor& all = pass.kept[of_tokens];
      const std::int64_t rows = all.dim(0) / tokens;  // of a token
      kept[of_tokens] = all.rows(begin * rows, end * rows);
    }
    forward_tokens(run, x.rows(begin, end), y.rows(begin, end), kept);
  }
}

void MixtureOfExperts::forward_tokens(Run& run, const Tensor& x, const Tensor& y,
                                      std::span<const Tensor> kept) {
  const TokenDispatch::Choices choices = choices_of(kept);
  ops::matmul(run, Transpose::kNT, x, router_.value, kept[kLogits], biases_.router.value);
  choose(run, kept);
  ops::assign_rows(run, kept[kExperts], capacity(run.training, x.dim(0)), kept[kPlaces],
                   kept[kSources], kept[kOffsets]);
  dispatch_->begin(run, setup_, choices);
  const auto [count, offsets] = dispatch_->rows(choices);
  ATOLL_CHECK(count <= kept[kHidden].dim(0), "{} rows for experts, {} were planned", count,
              kept[kHidden].dim(0));
  Run inner = run;
  const Tensor rows = inner.take_scratch({x.dtype(), {count, x.dim(1)}});
  const Tensor h = inner.take_scratch({x.dtype(), {count, down_.spec.shape.dim(1)}});
  const Tensor hidden = kept[kHidden].rows(0, count);
  dispatch_->to_experts(inner, choices, x, rows);
  product(inner, gate_up_, rows, offsets, hidden);
  if (of_gate_up_) of_gate_up_->forward(inner, rows, offsets, hidden);
  if (has_biases()) ops::add_group_bias(inner, biases_.gate_up.value, offsets, hidden);
  activate(inner, hidden, h);
  product(inner, down_, h, offsets, rows);
  if (of_down_) of_down_->forward(inner, h, offsets, rows);
  if (adds_down_bias()) ops::add_group_bias(inner, biases_.down.value, offsets, rows);
  dispatch_->from_experts(inner, choices, rows, kept[kWeights], y);
}

// How often the tokens of all ranks that have parts of a micro-batch chose each expert; undefined
// where this rank has all of it.
Tensor MixtureOfExperts::count_load(Run& run, const Tensor& experts) const {
  if (options_.sequences == nullptr) return {};
  ATOLL_CHECK(options_.sequences->group != nullptr, "not connected");
  const Tensor counts = run.take_scratch({Dtype::kF64, {options_.num_experts}});
  ops::count_choices(run, experts, counts);
  const Waiting waiting(*options_.sequences);
  options_.sequences->group->all_reduce(counts);
  return counts;
}

// `rows` are the gradients of experts' results. A row's weight multiplies the bias of down too: its
// gradient grows by the product of both, and that of the bias by the row times its weight. `rows`
// are scaled by their weights.
void MixtureOfExperts::backward_down_bias(Run& run, const TokenDispatch::Choices& choices,
                                          const Tensor& offsets, const Tensor& weights,
                                          const Tensor& rows, const Tensor& dweights,
                                          const Tensor& dbias) {
  Run inner = run;
  const Tensor bias_rows = inner.take_scratch(rows.spec());
  const Tensor beside = inner.take_scratch(rows.spec());
  const Tensor of_bias = inner.take_scratch(dweights.spec());
  ops::fill_group_bias(inner, biases_.down.value, offsets, bias_rows);
  ops::fill_zero(inner, beside);
  dispatch_->weigh(inner, choices, weights, bias_rows, rows, beside, of_bias);
  ops::add(inner, dweights, of_bias, dweights);
  ops::fill_zero(inner, dbias);
  ops::add_group_sums(inner, rows, offsets, dbias);
}

void MixtureOfExperts::backward_input(Run& run, const Pass& pass) {
  const auto& kept = pass.kept;
  const auto& owed = pass.owed;
  const TokenDispatch::Choices choices = choices_of(pass.kept);
  const auto [count, offsets] = dispatch_->rows(choices);
  const Tensor hidden = kept[kHidden].rows(0, count);
  const Tensor dhidden = owed[kDhidden].rows(0, count);
  const Tensor activated = owed[kActivated].rows(0, count);
  const Tensor dx = flat(pass.dx);
  Run inner = run;
  const Tensor rows = inner.take_scratch({dx.dtype(), {count, dx.dim(1)}});
  const Tensor dh = inner.take_scratch(activated.spec());
  const Tensor dweights = inner.take_scratch(kept[kWeights].spec());
  const Tensor counts = count_load(inner, kept[kExperts]);
  dispatch_->to_experts(inner, choices, flat(pass.dy), rows);
  product_back(inner, down_, rows, offsets, dh);
  if (of_down_) of_down_->backward_input(inner, rows, offsets, dh);
  backward_activate(inner, hidden, dh, dhidden, activated);
  dispatch_->weigh(inner, choices, kept[kWeights], dh, activated, dhidden, dweights);
  if (adds_down_bias()) {
    backward_down_bias(inner, choices, offsets, kept[kWeights], rows, dweights, owed[kDdownBias]);
  }
  backward_router(inner, kept, counts, dweights, owed[kDlogits]);
  product_back(inner, gate_up_, dhidden, offsets, rows);
  if (of_gate_up_) of_gate_up_->backward_input(inner, dhidden, offsets, rows);
  dispatch_->from_experts(inner, choices, rows, {}, dx);
  ops::matmul(inner, Transpose::kNN, owed[kDlogits], router_.value, dx, {}, /*accumulate=*/true);
  // Here and not in forward, which recompute calls twice.
  const Tensor sums = load_->on(run.stream->device());
  if (has_plain_router()) {
    ops::add_router_sums(inner, kept[kLogits], kept[kExperts], kept[kPlaces], sums, counts);
  } else {
    ops::add_scored_router_sums(inner, options_.router, kept[kLogits], kept[kExperts],
                                kept[kPlaces], sums, counts);
  }
}

void MixtureOfExperts::backward_weight(Run& run, const Pass& pass) {
  const auto& owed = pass.owed;
  const TokenDispatch::Choices choices = choices_of(pass.kept);
  const auto [count, offsets] = dispatch_->rows(choices);
  const Tensor x = flat(pass.x);
  if (!router_.frozen) {
    ops::matmul(run, Transpose::kTN, owed[kDlogits], x, router_.grad, {}, /*accumulate=*/true);
  }
  if (has_biases() && !biases_.router.frozen) {
    ops::column_sum(run, owed[kDlogits], biases_.router.grad);
  }
  if (has_biases() && !biases_.gate_up.frozen) {
    ops::add_group_sums(run, owed[kDhidden].rows(0, count), offsets, biases_.gate_up.grad);
  }
  if (adds_down_bias() && !biases_.down.frozen) {
    ops::add(run, biases_.down.grad, owed[kDdownBias], biases_.down.grad);
  }
  Run inner = run;
  const Tensor rows = inner.take_scratch({x.dtype(), {count, x.dim(1)}});
  const Tensor dhidden = owed[kDhidden].rows(0, count);
  const Tensor activated = owed[kActivated].rows(0, count);
  if (!gate_up_.frozen || of_gate_up_) dispatch_->to_experts(inner, choices, x, rows);
  if (!gate_up_.frozen) ops::grouped_matmul_tn(inner, dhidden, rows, offsets, gate_up_.grad);
  if (of_gate_up_) of_gate_up_->backward_weight(inner, rows, dhidden, offsets);
  if (!down_.frozen || of_down_) dispatch_->to_experts(inner, choices, flat(pass.dy), rows);
  if (!down_.frozen) ops::grouped_matmul_tn(inner, rows, activated, offsets, down_.grad);
  if (of_down_) of_down_->backward_weight(inner, activated, rows, offsets);
}

void MixtureOfExperts::visit(ParamVisitor& visitor) {
  if (auto* experts = dynamic_cast<ExpertVisitor*>(&visitor)) experts->experts(*this);
  visitor.param(router_);
  if (!correction_.name.empty()) visitor.param(correction_);
  if (has_biases()) visitor.param(biases_.router);
  visitor.param(gate_up_);
  if (has_biases()) visitor.param(biases_.gate_up);
  visitor.param(down_);
  if (has_biases()) visitor.param(biases_.down);
  for (auto* adapter : {&of_gate_up_, &of_down_}) {
    if (*adapter) (*adapter)->visit(visitor);
  }
}

}  // namespace atl::nn
