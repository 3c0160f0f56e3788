#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "atoll/ckpt/checkpoint.h"
#include "atoll/comm/group.h"
#include "atoll/parallel/state/assemble.h"
#include "atoll/parallel/store/whole_state.h"
#include "atoll/train/step/state.h"

namespace atl::train {

/// Text files of a checkpoint, in the order of writing: name and content.
using CheckpointTexts = std::vector<std::pair<std::string, std::string>>;

/// One more file that this rank writes into a checkpoint: the state of a part of the run other than
/// model and optimizer. `texts` are written only on the lead.
struct ExtraPart {
  std::string file;                         ///< "outer.safetensors"; empty: no such file
  std::vector<ckpt::TensorSource> sources;  ///< these own or keep alive the memory that they read
  CheckpointTexts texts;
};

/// A checkpoint that all ranks write together. Each tensor is written whole, by the rank to which
/// share_out assigns it, so that any number of ranks can read it. Files are model.safetensors and
/// optimizer.safetensors, or with several writers model-00001-of-00003.safetensors, an index, and
/// optimizer-00001-of-00003.safetensors. With several copies of the model (HSDP) only the ranks of
/// the first copy write these.
class CheckpointSave {
 public:
  enum class Mode {
    kNow,     ///< written by commit(); the state must stay as it is until then
    kBeside,  ///< copied first, then written by a background thread; the state may change
  };
  /// The parts of a checkpoint besides tensors.
  struct Options {
    std::filesystem::path root;  ///< the directory of all checkpoints
    std::int64_t step = 0;
    CheckpointTexts texts;
    std::string adapter_file;  ///< LoRA: one file for all values; empty: a whole model's files
    Mode mode = Mode::kNow;
    ExtraPart extra;
  };

  /// Collects what this rank writes. Every rank must make one, at the same step. An error on one
  /// rank is thrown on all ranks.
  CheckpointSave(TrainState& state, const Options& options);
  /// The same for `pieces` of the whole model's state (optim::StateTensor; the name "" means
  /// values). The pieces of all ranks of the group together must have each element exactly once.
  CheckpointSave(const parallel::FlatLayout& whole, std::vector<optim::StateTensor> pieces,
                 comm::Group& group, const Options& options);
  /// Waits for the background thread. Removes the files of a checkpoint that was not committed.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  std::int64_t step() const { return options_.step; }
  /// Whether the background thread has written this rank's files, or has failed (Mode::kBeside).
  bool finished() const { return finished_; }
  /// Completes the checkpoint and returns its path: waits until all files are on the disk and were
  /// verified, then moves the checkpoint to its place. Every rank must call it, once. An error on
  /// one rank is thrown on all ranks; earlier checkpoints stay then.
  std::filesystem::path commit();

 private:
  struct File {
    std::string name;
    std::vector<ckpt::TensorSource> sources;
    ckpt::Metadata metadata;
  };

  // Where the tensors come from.
  struct Origin {
    const parallel::FlatLayout& layout;
    std::function<std::vector<optim::StateTensor>()> pieces;
    comm::Group* sharing = nullptr;  // the ranks that hold parts of the same copy; null: one does
    bool is_first_copy = true;
    TrainState* state = nullptr;  // null: pieces of the whole model
  };

  bool is_lead() const { return group_ == nullptr || group_->rank() == 0; }
  void agree(const std::function<void()>& action);
  void collect_and_begin(const Origin& origin);
  void collect(const Origin& origin);
  void number_files(const parallel::FlatLayout& layout);
  void collect_adapter(TrainState& state);
  void plan_files(const Origin& origin);
  void write();
  void finish();

  Options options_;
  comm::Group* group_;  // all ranks; null: this rank is alone
  int parts_size_ = 1;  // ranks that split parameters (tensor parallelism, experts)
  int parts_rank_ = 0;
  parallel::PipelinePart* pipeline_;  // null: this rank has the whole model
  std::size_t first_file_ = 0;        // number of the first file of this pipeline rank
  std::size_t num_files_ = 1;
  std::vector<std::string> contents_;  // which tensors the files of each pipeline rank have
  std::vector<int> takers_;            // the writer of each parameter and its state
  std::vector<File> files_;
  std::optional<parallel::WholeState> whole_;     // null: this rank's copy is not written
  std::optional<parallel::Assembled> assembled_;  // whole tensors, where ranks have parts
  // With LoRA and a pipeline: the adapter's values of all stages, on the rank that writes the file.
  std::vector<parallel::WholeTensor> adapter_;
  std::vector<std::unique_ptr<std::byte[]>> adapter_memory_;
  std::optional<ckpt::CheckpointWriter> writer_;  // of the lead
  std::optional<ckpt::CheckpointPart> part_;
  std::exception_ptr failure_;  // of the thread
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

}  // namespace atl::train
