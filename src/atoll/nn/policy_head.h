#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "atoll/nn/head.h"
#include "atoll/nn/layer.h"
#include "atoll/ops/policy/policy_loss.h"

namespace atl::nn {

/// The drawn tokens of a micro-batch, by row of (B T), and where their outcomes go.
struct PolicyTokens {
  std::span<const ops::DrawnTokenFacts> facts;
  std::span<ops::PolicyOutcome> outcomes;
};

/// Finds those of the micro-batch whose row 0 has this global index (Run::first_sample).
using FindPolicyTokens = std::function<PolicyTokens(std::int64_t first_sample)>;

/// A head with the loss of reinforcement learning in the place of cross-entropy: see
/// ops::policy_loss_of_logits. As LinearCrossEntropy, whose weight it uses, it never has the logits
/// of all rows, and makes the gradients in the forward pass. Logits are computed row by row as a
/// sampler computes them (Run::row_stable), so log-probabilities have the same bits. On a CPU.
/// x: (B, T, C)  y: (B, T), each position's loss (0 where there is no target)
class PolicyHead final : public Layer {
 public:
  /// `inner` is a LinearCrossEntropy.
  PolicyHead(std::unique_ptr<Layer> inner, const ops::PolicyLoss& loss, FindPolicyTokens find);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  void visit(ParamVisitor& visitor) override { inner_->visit(visitor); }

 private:
  const Param& weight() const { return *head_->weight(); }
  void pass_back(Run& run, const Tensor& logits, const Tensor& x, const Tensor& dx) const;

  std::unique_ptr<Layer> inner_;
  const LinearCrossEntropy* head_;  // inner_
  ops::PolicyLoss loss_;
  FindPolicyTokens find_;
};

}  // namespace atl::nn
