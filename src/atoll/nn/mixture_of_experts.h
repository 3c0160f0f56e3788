#pragma once

#include "atoll/nn/expert_load.h"
#include "atoll/nn/layer.h"

namespace atl::nn {

/// y[t] = sum over the chosen experts e of w[t, e] down_e(silu(gate_e(x[t])) * up_e(x[t])), in
/// place of one MLP (Shazeer et al. 2017; Jiang et al. 2024, "Mixtral of Experts").
/// x, y: (..., C).
///
/// The router is computed in the compute dtype. A token's choices are rows of their own, at most
/// tokens x top_k whatever the router says, which is what plan() asks for. In training the router's
/// own losses add to the gradients; they are no part of y and of no reported loss.
class MixtureOfExperts final : public Layer {
 public:
  struct Options {
    std::int64_t num_experts = 0;
    std::int64_t top_k = 0;
    bool normalize = true;       ///< the weights of a token are divided by their sum
    double balance_loss = 0;     ///< d(step loss)/d(mean load-balance loss of this block)
    double z_loss = 0;           ///< the same of the router's z-loss
    double capacity_factor = 0;  ///< in training an expert takes that many times an even share of a
                                 ///< micro-batch's choices, the first; 0: all that come
  };

  /// router: (E, C).  gate_up: (E 2F, C), each expert's gate, then up.  down: (E C, F). `load`
  /// must outlive the layer.
  MixtureOfExperts(const Options& options, Param router, Param gate_up, Param down,
                   ExpertLoad* load);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  // The specs of a pass over T tokens.
  struct Sizes {
    std::int64_t tokens = 0, rows = 0, width = 0, hidden = 0;
  };
  Sizes sizes(const Spec& x) const;
  std::int64_t capacity(const Run& run, const Sizes& size) const;
  std::size_t product_scratch_bytes(const Spec& x) const;
  static void product(Run& run, const Param& weight, Tensor a, Tensor offsets, Tensor c);

  Options options_;
  Param router_;
  Param gate_up_;
  Param down_;
  ExpertLoad* load_;
};

}  // namespace atl::nn
