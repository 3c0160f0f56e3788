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
#include "atoll/nn/preference_head.h"
#include "atoll/ops/fp8/layout.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/compress/onebit_optimizer.h"
#include "atoll/parallel/layout/context_share.h"
#include "atoll/parallel/runner/pipeline_part.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/state/replica.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/parallel/store/store_data_parallel.h"
#include "atoll/tensor/file_arena.h"
#include "atoll/train/step/error_feedback.h"

namespace atl::optim {
class OffloadedOptimizer;
}
namespace atl::parallel {
class InFile;
}

namespace atl::train {

class StepExchange;

/// Which parts of the training state are in a file or in host memory; each rank has its own.
struct OffloadChoice {
  bool optimizer = false;                 ///< the optimizer's state
  bool params = false;                    ///< parameters and gradients; needs `optimizer` too
  std::filesystem::path directory;        ///< of the file; empty: host memory of a GPU's machine
  std::int64_t piece_elements = 1 << 20;  ///< see optim::OffloadOptions
};

/// The options that determine the memory of one rank.
struct StateOptions {
  nn::ModelConfig model;
  nn::BuildOptions build;
  optim::OptimizerOptions optimizer;
  std::optional<nn::LoraOptions> lora;  ///< adapters; only these are trained
  std::optional<ops::Fp8Scaling> fp8;   ///< linear layers multiply in 8 bits
  std::int64_t micro_batch = 1;         ///< sequences in one forward pass
  std::int64_t context = 1;             ///< tokens in a sequence, over all ranks that share it
  parallel::DataParallelOptions data_parallel;
  parallel::PipelineOptions pipeline;  ///< one rank: this rank has the whole model
  bool folds_residual = false;         ///< see dp.compress_owed
  bool replicate = false;              ///< keep a copy of the next rank's shard
  bool training = true;                ///< false: parameters and a forward pass only
  /// Keeps weights in the bits of their files (model_dir/stored_weights.h); empty: all are wide.
  std::function<void(nn::Model& model)> keep_stored = {};
  /// Changes the model that was built, before memory is planned for it; empty: nothing does.
  std::function<void(nn::Model& model)> change_model = {};
  OffloadChoice offload;  ///< of training
  /// The loss is one of pairs of sequences, whose facts come from `preference_source`.
  std::optional<nn::PreferenceOptions> preference = {};
  std::shared_ptr<const nn::PreferenceSource> preference_source = {};
};

/// The model, the optimizer and the memory of one rank. The constructor plans the memory;
/// allocate() takes it from the device. So `atoll plan` prints the memory of a run with the same
/// code that the run uses.
class TrainState {
 public:
  explicit TrainState(const StateOptions& options);
  ~TrainState();

  const StateOptions& options() const { return options_; }
  const MemoryPlan& memory() const { return plan_; }
  /// The memory that is in a file (StateOptions::offload), in whole pages; 0 bytes where nothing is
  /// in a file.
  const MemoryPlan& file_memory() const { return file_plan_; }
  nn::Model& model() { return *model_; }
  parallel::ParamStore& store() { return *store_; }
  const parallel::ParamStore& store() const { return *store_; }
  parallel::Runner& runner() { return runner_; }
  /// Only in training.
  optim::Optimizer& optimizer() { return *optimizer_; }
  /// The copy of the next rank's shard; null when there is none, or when every rank has everything.
  parallel::Replica* replica() { return replica_.get(); }
  /// optimizer(), where the optimizer sends signs; else null.
  parallel::OneBitOptimizer* onebit() { return onebit_; }
  const parallel::OneBitOptimizer* onebit() const { return onebit_; }
  /// Whether all data-parallel ranks have the same values. False during local steps.
  bool is_together() const { return onebit_ == nullptr || onebit_->is_together(); }
  /// The residual that is added to the next step's gradient; empty in most runs.
  ResidualGradient& residual_gradient() { return residual_gradient_; }
  const ResidualGradient& residual_gradient() const { return residual_gradient_; }
  /// Adds the residual to store().grads(): sums over ranks if `sums`, else this rank's own.
  void add_residual_gradient(bool sums);
  /// What a checkpoint stores of this rank: parallel::held_pieces, and residual_gradient().
  std::vector<optim::StateTensor> pieces_to_save();
  /// Memory that one update may overwrite: optimizer().scratch_bytes().
  std::span<std::byte> optimizer_scratch() const { return optimizer_scratch_; }

  /// Host memory for the losses of this number of micro-batches, (num_micro_batches, B, T), valid
  /// until the next call. allocate() has reserved enough for the rounds of data_parallel.
  Tensor host_losses(std::int64_t num_micro_batches);

  /// Takes the planned memory from `device`, which must outlive this. Reserves the space of the
  /// file first, if there is a file: see ScratchFile for the errors.
  void allocate(Device& device);

  /// The data-parallel ranks; the ranks that share one copy of the model; and, where there are
  /// several copies, the ranks that have the same part of each copy. All groups must outlive this.
  /// Without this call the rank is alone.
  void connect(comm::Group& group, comm::Group& shard, comm::Group* replicate);
  /// All ranks of the run; the ranks that share each matrix product; and, of these, the ranks with
  /// the same key-value heads. Not needed where all ranks are data-parallel ranks.
  void connect_tensor(comm::Group& all, comm::Group& tensor, comm::Group& kv_copies);
  /// All ranks of the run; the ranks that have the same part of the model; and, of these, the ranks
  /// that have the other parts of this rank's sequences. Only where ranks share sequences.
  void connect_context(comm::Group& all, comm::Group& sharing, comm::Group& context);
  /// All ranks of the run; the ranks that have the same part of the model; and the ranks that have
  /// the other experts. Only where ranks share experts.
  void connect_experts(comm::Group& all, comm::Group& sharing, comm::Group& experts);
  /// The ranks that have the other parts of this rank's parameters: parts of products, of experts,
  /// or of both. Only where ranks share products or experts.
  void connect_parts(comm::Group& parts);
  /// This rank's part of a micro-batch: the whole batch, or this rank's part of each sequence.
  /// Valid until the next call.
  Batch own_part(const Batch& batch) const {
    return context_share_ ? context_share_->of(batch) : batch;
  }
  /// The ranks that have the model's other stages, and the first and last of these ranks: see
  /// PipelinePart::connect.
  void connect_pipeline(comm::Group& all, comm::Group& pipeline, comm::Group* ends);
  /// This rank's part in a pipeline; null where it has the whole model.
  parallel::PipelinePart* pipeline() { return pipeline_.get(); }
  const parallel::PipelinePart* pipeline() const { return pipeline_.get(); }
  /// The micro-batches of a step, for a pipeline, which needs all of them at once. Copies each
  /// micro-batch that `next` returns.
  std::span<const Batch> hold(std::int64_t num_micro_batches, const std::function<Batch()>& next);

  /// Whether this rank has all stages, whole products and all experts. ZeRO does not count here:
  /// its ranks may share the parameters.
  bool has_whole_model() const {
    return options_.pipeline.num_ranks == 1 && options_.build.tensor_size == 1 &&
           options_.build.expert_size == 1;
  }
  /// The flat vector of the whole model, which is the same in all layouts. It is the store's own
  /// layout where has_whole_model().
  const parallel::FlatLayout& whole_layout();

  /// How a step and an evaluation exchange data with the ranks that this rank is connected to.
  StepExchange& exchange();

  /// The data-parallel ranks; null when this rank is alone.
  comm::Group* group() const { return group_; }
  int data_rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int num_data_ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  /// All ranks; null when this rank is alone.
  comm::Group* all_ranks() const { return all_ == nullptr ? group_ : all_; }
  /// The ranks that have the same part of the model, whatever part of the sequences they have; null
  /// when this rank is alone.
  comm::Group* sharing_group() const { return sharing_ == nullptr ? group_ : sharing_; }
  /// Null where each rank has whole sequences.
  comm::Group* context_group() const { return context_group_; }
  /// The ranks that have the other parts of this rank's parameters, of products or of experts;
  /// null: this rank has whole parameters.
  comm::Group* parts_group() const { return parts_group_; }
  /// The ranks of parts_group() that share each product with this rank; null: products are whole.
  comm::Group* tensor_group() const { return tensor_group_; }
  comm::Group* shard_group() const { return shard_group_; }
  comm::Group* replicate_group() const { return replicate_group_; }

 private:
  void make_optimizer(MemoryPlan& file);
  void make_file();

  StateOptions options_;
  std::unique_ptr<nn::Model> model_;
  // The members below may have transfers under way; their destructors wait for these transfers.
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
  optim::OffloadedOptimizer* offloaded_optimizer_ = nullptr;  // optimizer_, or null
  parallel::OneBitOptimizer* onebit_ = nullptr;               // optimizer_, or null
  ResidualGradient residual_gradient_;
  std::unique_ptr<StepExchange> exchange_;  // of the present groups; null: not made yet
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

/// Compares by hash the values that several ranks must have in common: the parameters of which
/// ranks have copies; with ZeRO 3, the same parts in several copies of the model; and the values
/// that all ranks with parts of products or of experts have. Returns nothing when all are equal,
/// else two ranks of the world whose values differ. Every rank must call it.
std::vector<int> replicas_that_differ(TrainState& state);

/// The memory plan as a table for people: bytes by group at the worst moment, and the total.
std::string describe_memory(const MemoryPlan& plan);

}  // namespace atl::train
