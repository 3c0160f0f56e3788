#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/parallel/compress/onebit_optimizer.h"

namespace atl::parallel {

/// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888). At first it is AdamW with gradients that were
/// summed over ranks. From then on the second moment stays as it is and ranks do not sum gradients:
/// each adds its own to the common momentum, and SignExchange makes the mean of these.
///
/// The common momentum is signs, which all ranks have of the last exchange. So its f32 and the
/// second moment's of the warm-up may be shared (ZeRO 1): a rank has those of its part, and once
/// the second moment stays, all of it. Where the warm-up ends, the owners of momenta write them as
/// signs and keep the rest as their residual.
class OneBitAdam final : public OneBitOptimizer {
 public:
  /// f32. `ranges` are those of the flat vector that this rank updates while it warms up: all, or
  /// its part of the layout. `layout`, of all ranks of the group, must outlive this.
  OneBitAdam(const optim::OptimizerOptions& options, const FlatLayout& layout,
             std::span<const optim::ParamRange> ranges, int rank, std::int64_t warmup);

  /// Whether gradients are summed. Its first answer that they are not fixes the second moment.
  bool begin_step(std::int64_t steps_taken) override;
  /// Off by 0.8% (one standard deviation).
  double grad_norm(Run& run, const Tensor& grads) override;
  void restored(std::int64_t second_updates, std::int64_t residual_steps) override;

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& run, Tensor values) override { adamw_->init_masters(run, values); }
  /// When gradients were not summed every rank must call it, and `grads` are this rank's own.
  void update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) override;
  std::vector<optim::StateTensor> state() const override;
  std::size_t scratch_bytes() const override { return adamw_->scratch_bytes(); }

 private:
  // Where AdamW has the moments of a piece; null: another rank has them.
  struct Held {
    float* m = nullptr;
    float* v = nullptr;
  };
  bool is_frozen() const { return second_updates_ >= 0; }
  bool shares_moments() const { return shares_moments_; }
  const float* second(const SignPiece& piece) const;
  Held held(const SignPiece& piece) const;
  void find_held();
  void share(Run& run);
  void encode_own(Run& run);
  void encode_own_on_gpu(Run& run);
  void recover_on_gpu();
  void gather_second();
  std::int64_t held_at(const SignPiece& piece) const {
    return held_at_[static_cast<std::size_t>(&piece - exchange_.pieces().data())];
  }
  float own_share(const optim::StepArgs& args) const;
  // The second moments as kernels find them.
  ops::Placed second() const;
  void update_on_gpu(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads);
  void apply(Run& run, const optim::StepArgs& args, float* values);

  std::unique_ptr<optim::Optimizer> adamw_;
  std::int64_t warmup_;
  bool shares_moments_;                // ranks have parts of AdamW's
  bool is_restored_ = false;           // the momentum is signs already
  bool is_shared_ = false;             // the signs of the momentum, and the second moment
  std::vector<Held> held_;             // of each piece
  std::vector<std::int64_t> held_at_;  // where these begin in AdamW's moments; -1: nowhere
  Tensor m_, v_;                       // these moments
  int second_request_ = -1;
  Tensor second_;  // with shares_moments_: all of it
};

}  // namespace atl::parallel
