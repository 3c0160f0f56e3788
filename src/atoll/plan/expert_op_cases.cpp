#include <memory>

#include "atoll/ops/matmul/grouped_matmul.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/routing/expert_rows.h"
#include "atoll/ops/routing/routing.h"
#include "atoll/plan/op_cases.h"
#include "atoll/plan/op_operands.h"

namespace atl::plan {

namespace {

using Bound = OpCase::Bound;
using ops::Transpose;

// What a router of random logits has made of the tokens.
struct Routed {
  Tensor logits, experts, weights, places, sources, offsets;
};

// Of a layer of experts. The calls of cases have copies of it.
struct Sizes {
  Dtype dtype;
  std::int64_t tokens, num_experts, k, width, inner;
  bool normalize;

  std::int64_t choices() const { return tokens * k; }
  Spec stored(std::int64_t rows, std::int64_t columns) const { return {dtype, {rows, columns}}; }
  Spec logits() const { return {Dtype::kF32, {tokens, num_experts}}; }
  Spec of_choices(Dtype of) const { return {of, {tokens, k}}; }
  double bytes(std::int64_t elements) const {
    return static_cast<double>(Spec{dtype, {elements}}.bytes());
  }

  Routed route(Operands& at) const {
    const Routed routed = {at.random(logits(), 4),
                           at.zeros(of_choices(Dtype::kI32)),
                           at.zeros(of_choices(Dtype::kF32)),
                           at.zeros(of_choices(Dtype::kI32)),
                           at.zeros({Dtype::kI32, {choices()}}),
                           at.zeros({Dtype::kI32, {num_experts + 1}})};
    at.scratch(std::max(ops::routing_scratch_bytes(routed.experts.shape(), num_experts),
                        ops::assign_rows_scratch_bytes(choices(), num_experts)));
    ops::route_tokens(at.run(), normalize, routed.logits, routed.experts, routed.weights);
    ops::assign_rows(at.run(), routed.experts, tokens, routed.places, routed.sources,
                     routed.offsets);
    return routed;
  }
};

class ExpertCases {
 public:
  explicit ExpertCases(const Sizes& sizes) : of_(sizes) {}

  std::vector<OpCase> make() {
    add_router();
    if (of_.dtype == Dtype::kBf16) add_router_products();
    add_rows();
    add_products("expert_up", 2 * of_.inner, of_.width);
    add_products("expert_down", of_.width, of_.inner);
    return std::move(cases_);
  }

 private:
  template <typename Make>
  void add(const std::string& name, Bound bound, double amount,
           const std::array<std::int64_t, 3>& sizes, Make make) {
    cases_.push_back({name, bound, amount, sizes, [make](const Run& run) -> std::function<void()> {
                        const auto operands = std::make_shared<Operands>(run);
                        const auto call = make(*operands);
                        return [operands, call] { call(operands->run()); };
                      }});
  }

  void add_router() {
    const Sizes of = of_;
    const auto logits = static_cast<double>(of.logits().bytes());
    const std::array<std::int64_t, 3> sizes = {of.tokens, of.num_experts, of.k};
    add("router/choose", Bound::kReading, logits, sizes, [of](Operands& at) {
      const Routed r = of.route(at);
      return [of, r](Run& run) {
        ops::route_tokens(run, of.normalize, r.logits, r.experts, r.weights);
      };
    });
    add("router/gradient", Bound::kCopying, 2 * logits, sizes, [of](Operands& at) {
      const Routed r = of.route(at);
      const Tensor dweights = at.random(of.of_choices(Dtype::kF32)),
                   dlogits = at.zeros(of.logits());
      return [of, r, dweights, dlogits](Run& run) {
        ops::route_tokens_backward(run, of.normalize, {.balance = 0.01, .z = 0.001}, r.logits,
                                   r.experts, r.weights, dweights, dlogits);
      };
    });
    add("router/sums", Bound::kReading, logits, sizes, [of](Operands& at) {
      const Routed r = of.route(at);
      const Tensor sums = at.zeros({Dtype::kF64, {of.num_experts + 4}});
      return
          [r, sums](Run& run) { ops::add_router_sums(run, r.logits, r.experts, r.places, sums); };
    });
    // Choices are read; places and sources are written.
    add("router/rows", Bound::kCopying, 12.0 * static_cast<double>(of.choices()), sizes,
        [of](Operands& at) {
          const Routed r = of.route(at);
          return [of, r](Run& run) {
            ops::assign_rows(run, r.experts, of.tokens, r.places, r.sources, r.offsets);
          };
        });
  }

  // Of f32 and bf16.
  void add_router_products() {
    const Sizes of = of_;
    const Spec x_spec = of.stored(of.tokens, of.width);
    const Spec w_spec = of.stored(of.num_experts, of.width);
    const Spec dw_spec = {Dtype::kF32, w_spec.shape};
    const double flops =
        2.0 * static_cast<double>(of.tokens) * static_cast<double>(of.num_experts * of.width);
    const std::array<std::int64_t, 3> sizes = {of.tokens, of.num_experts, of.width};
    add("router/mixed_input_gradient", Bound::kArithmetic, flops, sizes, [=](Operands& at) {
      const Tensor dlogits = at.random(of.logits()), w = at.random(w_spec), dx = at.zeros(x_spec);
      return [=](Run& run) { ops::matmul(run, Transpose::kNN, dlogits, w, dx, {}, true); };
    });
    add("router/mixed_weight_gradient", Bound::kArithmetic, flops, sizes, [=](Operands& at) {
      const Tensor dlogits = at.random(of.logits()), x = at.random(x_spec), dw = at.zeros(dw_spec);
      return [=](Run& run) { ops::matmul(run, Transpose::kTN, dlogits, x, dw, {}, true); };
    });
  }

  void add_rows() {
    const Sizes of = of_;
    const Spec tokens = of.stored(of.tokens, of.width), rows = of.stored(of.choices(), of.width);
    const std::array<std::int64_t, 3> sizes = {of.choices(), of.width, of.k};
    // Rows of tokens are read once by a cache that holds them until their last choice.
    const double moved = of.bytes((of.choices() + of.tokens) * of.width);
    add("expert_rows/gather", Bound::kCopying, moved, sizes, [=](Operands& at) {
      const Routed r = of.route(at);
      const Tensor x = at.random(tokens), y = at.zeros(rows);
      return [=](Run& run) { ops::gather_rows(run, x, r.sources, y); };
    });
    add("expert_rows/combine", Bound::kCopying, moved, sizes, [=](Operands& at) {
      const Routed r = of.route(at);
      const Tensor x = at.random(rows), y = at.zeros(tokens);
      return [=](Run& run) { ops::combine_rows(run, x, r.places, r.weights, y); };
    });
    const Spec one = of.stored(of.choices(), of.inner), two = of.stored(of.choices(), 2 * of.inner);
    // dh is read; h and the gradient of both first products are read and written.
    add("expert_rows/weigh", Bound::kCopying, of.bytes(7 * of.choices() * of.inner), sizes,
        [=](Operands& at) {
          const Routed r = of.route(at);
          const Tensor dh = at.random(one), h = at.random(one), d = at.random(two);
          const Tensor dweights = at.zeros(of.of_choices(Dtype::kF32));
          return [=](Run& run) { ops::weigh_rows(run, r.weights, r.sources, dh, h, d, dweights); };
        });
  }

  // The three products of all experts, each (out, in).
  void add_products(const std::string& name, std::int64_t out, std::int64_t in) {
    const Sizes of = of_;
    const Spec a_spec = of.stored(of.choices(), in), c_spec = of.stored(of.choices(), out);
    const Spec w_spec = of.stored(of.num_experts * out, in);
    const Spec dw_spec = {Dtype::kF32, w_spec.shape};
    const std::array<std::int64_t, 3> sizes = {of.choices(), out, in};
    const double flops = 2.0 * static_cast<double>(of.choices()) * static_cast<double>(out * in);
    const auto scratch = [=](Operands& at) {
      at.scratch(ops::grouped_matmul_scratch_bytes(c_spec, a_spec, w_spec, of.num_experts));
    };
    add(name + "/grouped_forward", Bound::kArithmetic, flops, sizes, [=](Operands& at) {
      const Routed r = of.route(at);
      const Tensor a = at.random(a_spec), w = at.random(w_spec), c = at.zeros(c_spec);
      scratch(at);
      return [=](Run& run) { ops::grouped_matmul(run, Transpose::kNT, a, w, r.offsets, c); };
    });
    add(name + "/grouped_input_gradient", Bound::kArithmetic, flops, sizes, [=](Operands& at) {
      const Routed r = of.route(at);
      const Tensor dc = at.random(c_spec), w = at.random(w_spec), da = at.zeros(a_spec);
      scratch(at);
      return [=](Run& run) { ops::grouped_matmul(run, Transpose::kNN, dc, w, r.offsets, da); };
    });
    add(name + "/grouped_weight_gradient", Bound::kArithmetic, flops, sizes, [=](Operands& at) {
      const Routed r = of.route(at);
      const Tensor dc = at.random(c_spec), a = at.random(a_spec), dw = at.zeros(dw_spec);
      scratch(at);
      return [=](Run& run) { ops::grouped_matmul_tn(run, dc, a, r.offsets, dw); };
    });
  }

  Sizes of_;
  std::vector<OpCase> cases_;
};

}  // namespace

std::vector<OpCase> expert_op_cases(const nn::ModelConfig& config, const OpSizes& sizes) {
  const nn::ExpertShape& experts = config.experts;
  ATOLL_CHECK(experts.num_experts > 0, "a model without experts");
  return ExpertCases({sizes.dtype, sizes.tokens(), experts.num_experts, experts.top_k,
                      config.hidden_size, experts.intermediate_size, experts.normalize})
      .make();
}

}  // namespace atl::plan
