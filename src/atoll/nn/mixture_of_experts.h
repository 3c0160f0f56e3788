#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "atoll/nn/adapters/expert_adapter.h"
#include "atoll/nn/axis.h"
#include "atoll/nn/expert_load.h"
#include "atoll/nn/layer.h"
#include "atoll/nn/token_dispatch.h"
#include "atoll/ops/routing/router_form.h"

namespace atl::nn {

/// y[t] = sum over the chosen experts e of w[t, e] down_e(silu(gate_e(x[t])) * up_e(x[t])), in
/// place of one MLP (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral of Experts"). gpt-oss's has
/// biases in the router and in all products, and another activation: see Options and Biases.
/// DeepSeek's chooses and weighs in another way: see Options::router.
/// x, y: (..., C).
///
/// The router is computed in the compute dtype. A token's choices are rows of their own, at most
/// tokens x top_k whatever the router says, which is what plan() asks for; a TokenDispatch brings
/// them to the experts. Outside training, where experts take all that come, tokens go through in
/// several parts if what is planned has no room for all. In training the router's own losses add to
/// the gradients; they are no part of y and of no reported loss.
class MixtureOfExperts final : public Layer {
 public:
  struct Options {
    std::int64_t num_experts = 0;
    std::int64_t top_k = 0;
    ops::RouterForm router;      ///< how choices and weights are made of logits
    double balance_loss = 0;     ///< d(step loss)/d(mean load-balance loss of this block)
    double z_loss = 0;           ///< the same of the router's z-loss
    double capacity_factor = 0;  ///< in training an expert takes that many times an even share of a
                                 ///< micro-batch's choices, the first; 0: all that come
    /// The ranks that have the other tokens of the same micro-batches, whose load is balanced over
    /// all; null: this one has all. No capacity factor then.
    Axis* sequences = nullptr;
    DeviceKind device = DeviceKind::kCpu;  ///< whose memory is planned
    /// Above 0: the activation is ops::clamped_swiglu with this limit.
    double swiglu_limit = 0;
    /// Whether the bias of down is added here: of the ranks that share each expert's products,
    /// whose results are summed, one adds it.
    bool adds_down_bias = true;
  };
  /// What is added to the router's logits, (E), and to the products of each of this rank's experts:
  /// (E' 2F), as gate_up's rows, and (E' C). All have names, or none.
  struct Biases {
    Param router, gate_up, down;
  };

  /// router: (E, C).  gate_up: (E' 2F, C), each expert's gate, then up.  down: (E' C, F). E' of the
  /// experts are this rank's; `dispatch` brings rows to all, null: E' is E. `load` must outlive the
  /// layer. correction: (E), what is added to scores to choose by, see ops::route_scored_tokens;
  /// an empty name means none. Nothing trains it.
  MixtureOfExperts(const Options& options, Param router, Param gate_up, Param down,
                   ExpertLoad* load, std::unique_ptr<TokenDispatch> dispatch = nullptr,
                   Biases biases = {}, Param correction = {});

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  /// An ExpertVisitor is told of the layer before its parameters.
  void visit(ParamVisitor& visitor) override;

  std::int64_t num_experts() const { return options_.num_experts; }
  const Param& gate_up() const { return gate_up_; }
  const Param& down() const { return down_; }
  /// From now on the products of gate and up, or of down, have a low-rank adapter beside them. This
  /// rank has all experts. Before memory is planned.
  void adapt_gate_up(ExpertAdapter adapter) { of_gate_up_ = std::move(adapter); }
  void adapt_down(ExpertAdapter adapter) { of_down_ = std::move(adapter); }

 private:
  // Of a pass over T tokens: the rows that experts here can get at most.
  struct Sizes {
    std::int64_t tokens = 0, rows = 0, width = 0, hidden = 0;
  };
  Sizes sizes(const Spec& x) const;
  /// Rows that an expert takes of T tokens.
  std::int64_t capacity(bool training, std::int64_t tokens) const;
  TokenDispatch::Footprint plan_dispatch(const Spec& x) const;
  std::size_t product_scratch_bytes(const Spec& x) const;
  Tensor count_load(Run& run, const Tensor& experts) const;
  bool has_plain_router() const { return options_.router.is_plain() && correction_.name.empty(); }
  void choose(Run& run, std::span<const Tensor> kept) const;
  void backward_router(Run& run, std::span<const Tensor> kept, const Tensor& counts,
                       const Tensor& dweights, const Tensor& dlogits) const;
  static TokenDispatch::Choices choices_of(std::span<const Tensor> kept);
  void forward_tokens(Run& run, const Tensor& x, const Tensor& y, std::span<const Tensor> kept);
  bool has_biases() const { return !biases_.router.name.empty(); }
  bool adds_down_bias() const { return has_biases() && options_.adds_down_bias; }
  void activate(Run& run, const Tensor& hidden, const Tensor& h) const;
  void backward_activate(Run& run, const Tensor& hidden, const Tensor& dh, const Tensor& dhidden,
                         const Tensor& activated) const;
  void backward_down_bias(Run& run, const TokenDispatch::Choices& choices, const Tensor& offsets,
                          const Tensor& weights, const Tensor& rows, const Tensor& dweights,
                          const Tensor& dbias);
  static void product(Run& run, const Param& weight, Tensor a, Tensor offsets, Tensor c);
  static void product_back(Run& run, const Param& weight, const Tensor& dy, const Tensor& offsets,
                           const Tensor& dx);
  std::size_t adapter_scratch_bytes(std::int64_t rows) const;

  Options options_;
  Param router_;
  Param gate_up_;
  Param down_;
  Biases biases_;
  Param correction_;
  std::optional<ExpertAdapter> of_gate_up_, of_down_;
  ExpertLoad* load_;
  std::unique_ptr<TokenDispatch> dispatch_;
  TokenDispatch::Setup setup_;
};

/// A ParamVisitor that changes experts, as LoRA does.
class ExpertVisitor : public ParamVisitor {
 public:
  virtual void experts(MixtureOfExperts& experts) = 0;
};

}  // namespace atl::nn
