#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/parallel/compress/onebit_optimizer.h"

namespace atl::parallel {

/// When 0/1 Adam does what.
struct ZeroOneSchedule {
  std::int64_t warmup = 0;      ///< steps after which the second moment stays
  std::int64_t doubling = 8;    ///< updates of it, after which the steps between two double
  std::int64_t max_local = 16;  ///< the most steps between two exchanges
  std::int64_t last_step = 0;   ///< after which ranks must have the same values

  /// Whether the step after `steps_taken` updates the second moment, for which gradients are
  /// summed: at first each does, then every second, fourth, ... (Lu et al. 2022, section 6).
  bool updates_second(std::int64_t steps_taken) const;
  /// Steps from one exchange to the next one, at this part of the highest learning rate: 2 where
  /// it is above a half, and twice as many whenever it halves.
  std::int64_t local_steps(double lr_ratio) const;
};

/// 0/1 Adam (Lu et al. 2022, arXiv 2202.06009). The second moment changes in steps of a schedule,
/// which are AdamW's; from warm-up on it stays. In other steps a rank moves its values by a
/// momentum of its own, from its own gradients, and from time to time all ranks make the mean of
/// how far they came with SignExchange: in every step until warm-up, then after several local
/// steps. That mean is the common momentum too. Weight decay is applied where ranks meet.
class ZeroOneAdam final : public OneBitOptimizer {
 public:
  /// f32, all of `layout` on each rank. It must outlive this.
  ZeroOneAdam(const optim::OptimizerOptions& options, const FlatLayout& layout, int rank,
              const ZeroOneSchedule& schedule);

  bool begin_step(std::int64_t steps_taken) override;
  /// Off by 3% (one standard deviation).
  double grad_norm(Run& run, const Tensor& grads) override;
  /// Ends local steps.
  void skip(Run& run, Tensor values) override;
  bool is_together() const override { return local_steps_ == 0; }

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& /*run*/, Tensor /*values*/) override {}
  /// Every rank must call it; `grads` are sums or this rank's own, as begin_step() said.
  void update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) override;
  /// Only where is_together().
  std::vector<optim::StateTensor> state() const override;

 private:
  void update_dense(Run& run, const optim::StepArgs& args, const Tensor& values,
                    const Tensor& grads);
  void step_alone(Run& run, const optim::StepArgs& args, const Tensor& values, const Tensor& grads);
  void step_on_host(Run& run, const optim::StepArgs& args, float* values, const float* grads);
  void meet(Run& run, const Tensor& values);
  void meet_on_gpu(Run& run, const Tensor& values, float residual_share);
  void meet_on_host(Run& run, float* values, float residual_share);
  float own_share(const optim::StepArgs& args) const;
  ops::ZeroOneStep kernel_step(const optim::StepArgs& args, const Tensor& values,
                               const Tensor& grads) const;

  ZeroOneSchedule schedule_;
  double peak_lr_;
  bool sums_ = true;  // in the step that is under way
  // Of the local steps since ranks met.
  std::int64_t local_steps_ = 0;
  std::int64_t wanted_steps_ = 1;
  double moved_ = 0;    // sum of the factors of momenta in units
  double decayed_ = 0;  // sum of learning rates
  int m_request_ = -1, v_request_ = -1, anchor_request_ = -1;
  Tensor m_, v_;
  Tensor anchor_;  // values where ranks met last
};

}  // namespace atl::parallel
