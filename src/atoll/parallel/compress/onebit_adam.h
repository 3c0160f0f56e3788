#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/parallel/compress/onebit_optimizer.h"

namespace atl::parallel {

/// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888). During the warm-up it is AdamW, with gradients
/// that ranks have summed. After the warm-up the second moment stays fixed, and ranks do not sum
/// gradients: each rank adds its own gradient to the common momentum, and SignExchange computes the
/// mean of the ranks' momenta.
///
/// After an exchange every rank has the common momentum, as signs. So ranks can shard AdamW's f32
/// moments (ZeRO 1): each rank keeps those of its part and, after the warm-up, also the whole
/// second moment. When the warm-up ends, each rank encodes the momentum of its part as signs and
/// keeps the rounding error as a residual.
class OneBitAdam final : public OneBitOptimizer {
 public:
  /// Values must be f32. `ranges`: the ranges of the flat vector that this rank updates during the
  /// warm-up, all of them or its part of the layout. `layout` is that of all ranks of the group and
  /// must outlive this. `warmup`: steps.
  OneBitAdam(const optim::OptimizerOptions& options, const FlatLayout& layout,
             std::span<const optim::ParamRange> ranges, int rank, std::int64_t warmup);

  /// See OneBitOptimizer. The first call that returns false fixes the second moment.
  bool begin_step(std::int64_t steps_taken) override;
  /// The estimate has a relative standard deviation of 0.8%.
  double grad_norm(Run& run, const Tensor& grads) override;
  void restored(std::int64_t second_updates, std::int64_t residual_steps) override;

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& run, Tensor values) override { adamw_->init_masters(run, values); }
  /// In a step that does not sum gradients every rank must call it, with its own gradients.
  void update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) override;
  std::vector<optim::StateTensor> state() const override;
  std::size_t scratch_bytes() const override { return adamw_->scratch_bytes(); }

 private:
  // AdamW's moments of a piece; null: another rank has them.
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
  // The second moments for kernels.
  ops::Placed second() const;
  void update_on_gpu(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads);
  void apply(Run& run, const optim::StepArgs& args, float* values);

  std::unique_ptr<optim::Optimizer> adamw_;
  std::int64_t warmup_;
  bool shares_moments_;                // each rank has only its part of AdamW's moments
  bool is_restored_ = false;           // the momentum in memory was made from signs
  bool is_shared_ = false;             // all ranks have the signs and the second moment
  std::vector<Held> held_;             // by piece
  std::vector<std::int64_t> held_at_;  // by piece: where it begins in m_ and v_; -1: not held
  Tensor m_, v_;                       // AdamW's moments on this rank, flat
  int second_request_ = -1;
  Tensor second_;  // the whole second moment, with shares_moments_
};

}  // namespace atl::parallel
