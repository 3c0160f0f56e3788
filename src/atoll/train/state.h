#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/nn/lora.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/fp8_layout.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/context_share.h"
#include "atoll/parallel/onebit_optimizer.h"
#include "atoll/parallel/param_store.h"
#include "atoll/parallel/pipeline_part.h"
#include "atoll/parallel/replica.h"
#include "atoll/parallel/runner.h"
#include "atoll/parallel/store_data_parallel.h"
#include "atoll/tensor/file_arena.h"
#include "atoll/train/owed_gradient.h"

namespace atl::optim {
class OffloadedOptimizer;
}
namespace atl::parallel {
class InFile;
}

namespace atl::train {

class StepExchange;

/// What of the training state lies in a file, or in the host's memory, of each rank for itself.
struct OffloadChoice {
  bool optimizer = false;                 ///< the optimizer's state
  bool params = false;                    ///< parameters and gradients; only beside `optimizer`
  std::filesystem::path directory;        ///< of the file; empty: memory of the host of a GPU
  std::int64_t piece_elements = 1 << 20;  ///< see optim::OffloadOptions
};

/// What one rank's memory depends on.
struct StateOptions {
  nn::ModelConfig model;
  nn::BuildOptions build;
  optim::OptimizerOptions optimizer;
  std::optional<nn::LoraOptions> lora;  ///< adapters, which alone are then trained
  std::optional<ops::Fp8Scaling> fp8;   ///< products of linear layers are in 8 bits
  std::int64_t micro_batch = 1;         ///< sequences in one forward pass
  std::int64_t context = 1;             ///< tokens in a sequence, on all ranks that share it
  parallel::DataParallelOptions data_parallel;
  parallel::PipelineOptions pipeline;  ///< one rank: the whole model is here
  bool folds_owed = false;             ///< see dp.compress_owed
  bool replicate = false;              ///< keep a copy of the next rank's share
  bool training = true;                ///< false: parameters and a forward pass only
  OffloadChoice offload;               ///< of training
};

/// The model, its optimizer and the memory of one rank. Planned by the constructor; nothing is
/// taken from the device before allocate(), so that `atoll plan` prints what a run will use from
/// the code that the run uses.
class TrainState {
 public:
  explicit TrainState(const StateOptions& options);
  ~TrainState();

  const StateOptions& options() const { return options_; }
  const MemoryPlan& memory() const { return plan_; }
  /// What lies in a file (StateOptions::offload), in whole pages of it; of no bytes where nothing
  /// does.
  const MemoryPlan& file_memory() const { return file_plan_; }
  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return *store_; }
  const parallel::ParamStore& store() const { return *store_; }
  parallel::Runner& runner() { return runner_; }
  /// Only in training.
  optim::Optimizer& optimizer() { return *optimizer_; }
  /// The copy of the next rank's share; null when there is none, or when all ranks have everything.
  parallel::Replica* replica() { return replica_.get(); }
  /// optimizer(), where it sends signs; else null.
  parallel::OneBitOptimizer* onebit() { return onebit_; }
  const parallel::OneBitOptimizer* onebit() const { return onebit_; }
  /// Whether all data-parallel ranks have the same values: not in local steps.
  bool is_together() const { return onebit_ == nullptr || onebit_->is_together(); }
  /// What is to be added to the next step's gradient; empty in most runs.
  OwedGradient& owed_gradient() { return owed_gradient_; }
  const OwedGradient& owed_gradient() const { return owed_gradient_; }
  /// Adds it to store().grads(), which hold sums over ranks, or where not `sums`, this rank's own.
  void add_owed_gradient(bool sums);
  /// What a checkpoint holds of this rank: parallel::held_pieces, and owed_gradient().
  std::vector<optim::StateTensor> pieces_to_save();
  /// What one update may overwrite: optimizer().scratch_bytes().
  std::span<std::byte> optimizer_scratch() const { return optimizer_scratch_; }

  /// Host memory for the losses of so many micro-batches, (num_micro_batches, B, T), until the next
  /// call. allocate() has taken what the rounds of data_parallel need.
  Tensor host_losses(std::int64_t num_micro_batches);

  /// Takes the planned memory from `device`, which must outlive this, and first of all the room of
  /// the file, if there is one: see ScratchFile for what that throws.
  void allocate(Device& device);

  /// The data-parallel ranks; those that share one copy of the model; and, where there are several
  /// copies, those that hold the same part of each. All must outlive this. Without it the rank is
  /// alone.
  void connect(comm::Group& group, comm::Group& shard, comm::Group* replicate);
  /// All ranks of the run, those that share each product, and of these, those that have the same
  /// key-value heads. Where there are none but data-parallel ranks it need not be called.
  void connect_tensor(comm::Group& all, comm::Group& tensor, comm::Group& kv_copies);
  /// All ranks of the run; those that have the same part of the model; and of these, those that
  /// have the other parts of this one's sequences. Only where sequences are shared.
  void connect_context(comm::Group& all, comm::Group& sharing, comm::Group& context);
  /// All ranks of the run; those that have the same part of the model; and those that have the
  /// other experts. Only where ranks share experts.
  void connect_experts(comm::Group& all, comm::Group& sharing, comm::Group& experts);
  /// Those that have the other parts of this one's parameters, of products or of experts or of
  /// both. Only where ranks share either.
  void connect_parts(comm::Group& parts);
  /// This rank's part of a micro-batch: all of it, or of each sequence what is its own. Valid until
  /// the next call.
  Batch own_part(const Batch& batch) const {
    return context_share_ ? context_share_->of(batch) : batch;
  }
  /// The ranks that have the model's other stages, and the first and the last of them: see
  /// PipelinePart::connect.
  void connect_pipeline(comm::Group& all, comm::Group& pipeline, comm::Group* ends);
  /// This rank's part in a pipeline; null where it has the whole model.
  parallel::PipelinePart* pipeline() { return pipeline_.get(); }
  const parallel::PipelinePart* pipeline() const { return pipeline_.get(); }
  /// What a pipeline takes at once: a copy of each of a step's micro-batches, which this asks
  /// `next` for.
  std::span<const Batch> hold(std::int64_t num_micro_batches, const std::function<Batch()>& next);

  /// Whether this rank has all stages, whole products and all experts, be it in a layout that
  /// shares parameters by ZeRO.
  bool has_whole_model() const {
    return options_.pipeline.num_ranks == 1 && options_.build.tensor_size == 1 &&
           options_.build.expert_size == 1;
  }
  /// The flat vector of the whole model: the same in all layouts, and the store's own where
  /// has_whole_model().
  const parallel::FlatLayout& whole_layout();

  /// How a step and an evaluation meet those of the ranks that this one is connected to.
  StepExchange& exchange();

  /// The data-parallel ranks; null when this rank is alone.
  comm::Group* group() const { return group_; }
  int data_rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int num_data_ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  /// All ranks; null when this rank is alone.
  comm::Group* all_ranks() const { return all_ == nullptr ? group_ : all_; }
  /// Those that have the same part of the model, whatever part of the sequences; null when this
  /// rank is alone.
  comm::Group* sharing_group() const { return sharing_ == nullptr ? group_ : sharing_; }
  /// Null where each rank has whole sequences.
  comm::Group* context_group() const { return context_group_; }
  /// Those that have the other parts of this rank's parameters, of products or of experts; null: it
  /// has them whole.
  comm::Group* parts_group() const { return parts_group_; }
  /// Those of them that share each product with this one; null: it has whole ones.
  comm::Group* tensor_group() const { return tensor_group_; }
  comm::Group* shard_group() const { return shard_group_; }
  comm::Group* replicate_group() const { return replicate_group_; }

 private:
  void make_optimizer(MemoryPlan& file);
  void make_file();

  StateOptions options_;
  std::unique_ptr<nn::Model> model_;
  // Those below have transfers under way, and wait for them when they end.
  std::unique_ptr<FileArena> file_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<parallel::PipelinePart> pipeline_;
  std::unique_ptr<parallel::ParamStore> store_;
  parallel::Runner runner_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::Replica> replica_;
  std::unique_ptr<nn::Model> whole_model_;  // without memory, where whole_layout() needs it
  std::optional<parallel::FlatLayout> whole_layout_;
  MemoryPlan plan_, file_plan_;
  Device* device_ = nullptr;
  parallel::InFile* store_in_file_ = nullptr;  // store_, where its parameters lie in a file
  optim::OffloadedOptimizer* offloaded_optimizer_ = nullptr;  // optimizer_, where it is one
  parallel::OneBitOptimizer* onebit_ = nullptr;               // the same
  OwedGradient owed_gradient_;
  std::unique_ptr<StepExchange> exchange_;  // of the present groups; null: nobody has asked yet
  Buffer losses_;
  std::optional<parallel::ContextShare> context_share_;  // where sequences are shared
  std::vector<Buffer> held_;
  std::vector<Batch> held_batches_;
  comm::Group* group_ = nullptr;
  comm::Group* all_ = nullptr;
  comm::Group* sharing_ = nullptr;
  comm::Group* context_group_ = nullptr;
  comm::Group* parts_group_ = nullptr;
  comm::Group* tensor_group_ = nullptr;
  comm::Group* shard_group_ = nullptr;
  comm::Group* replicate_group_ = nullptr;
  int optimizer_scratch_request_ = -1;
  std::span<std::byte> optimizer_scratch_;
};

/// Compares by hash what ranks hold in common: each parameter they hold a copy of, and the parts of
/// it that several copies share; and what ranks that share products or experts all hold. Returns
/// nothing when all agree, else two ranks of the world: one, and one that differs from it. Every
/// rank must call it.
std::vector<int> replicas_that_differ(TrainState& state);

/// The memory plan as a table for people: bytes by group at the worst moment, and the total.
std::string describe_memory(const MemoryPlan& plan);

}  // namespace atl::train
