#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/comm/mesh.h"
#include "atoll/nn/axis.h"
#include "atoll/parallel/layout/micro_batches.h"
#include "atoll/train/config/config.h"

namespace atl::train {

/// What one rank tells the others after each step.
struct RankFacts {
  double signal = 0;           ///< the signal that asked it to stop, else 0
  double save_wanted = 0;      ///< 1: a signal asked it to save and go on
  double step_seconds = 0;     ///< of the whole step
  double waited_seconds = 0;   ///< of these, for collectives
  double data_seconds = 0;     ///< and for data
  double compute_seconds = 0;  ///< in forward and backward of one micro-batch, mean
  double change_wanted = 0;    ///< 1: other ranks are wanted (Membership), said by the lead
  double has_saved = 0;        ///< not 0: its part of a checkpoint is written
  double trace_steps = 0;      ///< a trace of so many steps is asked for, said by the lead
};

/// The ranks of a run: the mesh with its groups that its settings ask for, and which micro-batches
/// each takes.
class Ranks {
 public:
  /// Throws Error(kUser) when the world's size does not fit the settings.
  Ranks(comm::World& world, const TrainConfig& config);

  comm::World& world() const { return world_; }
  /// All of them.
  comm::Group& group() const { return world_.all(); }
  /// The data-parallel ranks: they take different micro-batches and hold the same parameters.
  comm::Group& data() const { return data_ ? *data_ : world_.all(); }
  int data_rank() const { return data().rank(); }
  /// The ranks that hold the same part of the model: the data-parallel ranks of all parts of the
  /// sequences; with parallel.ep only those that hold the same experts.
  comm::Group& sharing() const { return sharing_ ? *sharing_ : data(); }
  /// Those that have the other parts of this one's sequences; null: it has all.
  comm::Group* context() const { return context_.get(); }
  /// Those that have the other experts and this one's part of the products, its neighbours among
  /// the data-parallel ranks; null: it has all.
  comm::Group* experts() { return expert_size_ > 1 ? &mesh_.group("ep") : nullptr; }
  /// Those that have the other parts of this one's parameters: those that share products or experts
  /// with it; null: it has whole ones.
  comm::Group* parts() {
    if (parts_) return parts_.get();
    return tensor_size_ > 1 ? &tensor() : experts();
  }
  /// Those that share each product with this one.
  comm::Group& tensor() { return mesh_.group("tp"); }
  int tensor_size() const { return tensor_size_; }
  /// Those that have the other stages of the model that this one has a part of, in their order.
  comm::Group& pipeline() { return mesh_.group("pp"); }
  int pipeline_size() const { return size() / tensor_size_ / expert_size_ / sharing().size(); }
  /// The first of them and the last, where this is one of these; else null.
  std::unique_ptr<comm::Group> pipeline_ends();
  /// Those of them that have the same key-value heads, `axis.size` neighbours of which this one is
  /// the `axis.rank`th. Every rank must call it.
  std::unique_ptr<comm::Group> kv_copies(const nn::Axis& axis);
  comm::Group& shard() { return mesh_.group("shard"); }
  /// Null when there is one copy.
  comm::Group* replicate();
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  /// The rank that prints, and writes what is written once.
  bool is_lead() const { return rank() == 0; }
  bool is_alone() const { return size() == 1; }

  const parallel::MicroBatchPlan& plan() const { return plan_; }
  /// Everybody's facts of a step, by rank. Every rank must call it.
  std::vector<RankFacts> gather(const RankFacts& mine);
  /// What this rank has sent of gradients and values to others that have the same part of the
  /// model.
  std::uint64_t data_bytes_sent();
  /// With dp.balance: shares the micro-batches anew by the speed of late; true when that changed
  /// them. The facts are those of all ranks, so all decide alike.
  bool balance(const std::vector<RankFacts>& facts);

 private:
  comm::World& world_;
  comm::Mesh mesh_;
  int tensor_size_, expert_size_;
  std::unique_ptr<comm::Group> data_;                       // null: all ranks
  std::unique_ptr<comm::Group> sharing_, context_, parts_;  // null: see above
  parallel::MicroBatchPlan plan_;
  bool balances_;
  std::vector<double> micro_batch_seconds_;  // of each rank, smoothed
  std::int64_t steps_since_ = 0;
};

/// How many of `num_micro_batches` each rank takes so that the last rank ends as early as possible.
/// Each rank takes at least one; each further one goes to the rank that would end first, and of
/// equal ranks to the lower. `seconds`: of one micro-batch on each rank.
std::vector<std::int64_t> balanced_shares(std::int64_t num_micro_batches,
                                          const std::vector<double>& seconds);

}  // namespace atl::train
