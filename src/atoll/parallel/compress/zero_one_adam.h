#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/parallel/compress/onebit_optimizer.h"

namespace atl::parallel {

/// The steps in which 0/1 Adam updates the second moment and exchanges signs.
struct ZeroOneSchedule {
  std::int64_t warmup = 0;      ///< steps after which the second moment stays fixed
  std::int64_t doubling = 8;    ///< after so many updates of it, the interval between them doubles
  std::int64_t max_local = 16;  ///< the most steps from one exchange to the next
  std::int64_t last_step = 0;   ///< the step after which ranks must have the same values

  /// Whether the step after `steps_taken` steps updates the second moment, from summed gradients:
  /// at first each step does, then every second, fourth, ... (Lu et al. 2022, section 6).
  bool updates_second(std::int64_t steps_taken) const;
  /// The number of steps from one exchange to the next after the warm-up. `lr_ratio`: the learning
  /// rate divided by the peak. Above 1/2 the number is 2; it doubles whenever the ratio halves, up
  /// to max_local.
  std::int64_t local_steps(double lr_ratio) const;
};

/// 0/1 Adam (Lu et al. 2022, arXiv 2202.06009). The second moment changes only in the steps of a
/// schedule, which are steps of AdamW with summed gradients; after the warm-up it stays fixed. In
/// all other steps, local steps, each rank moves its values by its own momentum, from its own
/// gradients. After one local step, or after several once the warm-up is over, the ranks meet:
/// SignExchange computes the mean of their moves, all ranks go on from the values that this mean
/// gives, and the mean also becomes the common momentum. The weight decay of local steps is applied
/// when ranks meet.
class ZeroOneAdam final : public OneBitOptimizer {
 public:
  /// Values must be f32, and each rank has all of them. `layout` is that of the ranks of the group
  /// and must outlive this.
  ZeroOneAdam(const optim::OptimizerOptions& options, const FlatLayout& layout, int rank,
              const ZeroOneSchedule& schedule);

  bool begin_step(std::int64_t steps_taken) override;
  /// The estimate has a relative standard deviation of 3%.
  double grad_norm(Run& run, const Tensor& grads) override;
  /// Ends local steps: the ranks meet.
  void skip(Run& run, Tensor values) override;
  bool is_together() const override { return local_steps_ == 0; }

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& /*run*/, Tensor /*values*/) override {}
  /// Every rank must call it. `grads`: the sums over ranks if begin_step() returned true, else this
  /// rank's own gradients.
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
  bool sums_ = true;  // whether ranks sum gradients in the current step
  // Of the local steps since ranks last met.
  std::int64_t local_steps_ = 0;
  std::int64_t wanted_steps_ = 1;
  double moved_ = 0;    // the sum of their step sizes: lr / (1 - beta1^step)
  double decayed_ = 0;  // the sum of their learning rates
  int m_request_ = -1, v_request_ = -1, anchor_request_ = -1;
  Tensor m_, v_;
  Tensor anchor_;  // the values when ranks last met
};

}  // namespace atl::parallel
