#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/compression.h"
#include "atoll/parallel/flat_layout.h"

namespace atl::parallel {

/// The name of the vector of what owners owe, in a checkpoint: each element is its owner's.
inline constexpr const char* kOwedSum = "owed_sum";

/// 1-bit Adam (Tang et al. 2021, arXiv 2102.02888). At first it is AdamW with gradients that were
/// summed over ranks. From then on the second moment stays as it is and ranks do not sum gradients:
/// each adds its own to the common momentum, and sends a bit of every element of the result to the
/// rank that owns it; owners send a bit of the mean. Both keep what their bits do not say.
///
/// A bit says the sign of momentum / (sqrt(second moment) + eps), the mean magnitude of which in a
/// piece of 8,192 elements goes with the bits: in these units, in which a parameter moves, elements
/// are of one size. Elements whose second moment is 0 never had a gradient: they are masked, and
/// stay.
class OneBitAdam final : public optim::Optimizer {
 public:
  /// f32, all of `layout` on each of `num_ranks` ranks. `layout` must outlive this.
  OneBitAdam(const optim::OptimizerOptions& options, const FlatLayout& layout, int num_ranks,
             int rank, std::int64_t warmup);

  void connect(comm::Group& group) { group_ = &group; }

  /// Whether the update after `steps_taken` is one of the second kind, for which gradients must not
  /// be summed. Its first such answer fixes the second moment.
  bool is_frozen(std::int64_t steps_taken);
  /// The number of updates that the second moment has; -1: it is not frozen.
  std::int64_t frozen_at() const { return frozen_at_; }
  void set_frozen_at(std::int64_t steps) { frozen_at_ = steps; }
  /// The norm of the sum over ranks of `grads` (this rank's, of the whole flat vector), from a sum
  /// of sketches (Charikar et al. 2002): off by 1.6% (one standard deviation). Every rank must call
  /// it. Infinite or NaN when an element is.
  double grad_norm(Run& run, const Tensor& grads);

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& run, Tensor values) override { adamw_->init_masters(run, values); }
  /// When frozen every rank must call it, and `grads` are this rank's own.
  void update(Run& run, const optim::StepArgs& args, Tensor values, Tensor grads) override;
  std::vector<optim::StateTensor> state() const override;
  std::size_t scratch_bytes() const override { return adamw_->scratch_bytes(); }

 private:
  struct Piece {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t byte = 0;
    bool decay = false;
  };

  void bind_moments();
  void send_own(Run& run, const optim::StepArgs& args, const float* grads);
  void send_sums(Run& run);
  void apply(Run& run, const optim::StepArgs& args, float* values);
  std::int64_t first_owned() const { return piece_parts_[static_cast<std::size_t>(rank_)]; }
  std::int64_t end_owned() const { return piece_parts_[static_cast<std::size_t>(rank_) + 1]; }

  std::unique_ptr<optim::Optimizer> adamw_;
  double beta1_, beta2_, eps_, weight_decay_;
  const FlatLayout& layout_;
  int num_ranks_, rank_;
  std::int64_t warmup_;
  std::int64_t frozen_at_ = -1;
  comm::Group* group_ = nullptr;
  std::vector<Piece> pieces_;
  std::vector<std::int64_t> piece_parts_;  // of rank r: pieces [r, r + 1)
  std::vector<std::int64_t> byte_parts_, received_parts_;
  int owed_request_ = -1, owed_sum_request_ = -1, codes_request_ = -1;
  float* m_ = nullptr;
  float* v_ = nullptr;
  Tensor owed_;      // of momentum, not sent by this rank
  Tensor owed_sum_;  // of this rank's pieces, not sent as their owner
  Tensor sent_, received_;
};

}  // namespace atl::parallel
