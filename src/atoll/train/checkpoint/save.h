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

/// Files of text in a checkpoint, in order: name and content.
using CheckpointTexts = std::vector<std::pair<std::string, std::string>>;

/// One more file of a checkpoint, which this rank writes: the state of a part of the run other than
/// model and optimizer. Only the lead's `texts` are written.
struct ExtraPart {
  std::string file;                         ///< "outer.safetensors"; empty: there is none
  std::vector<ckpt::TensorSource> sources;  ///< keep what they read alive
  CheckpointTexts texts;
};

/// A checkpoint of all ranks on its way to the disk. Each tensor is written whole, by the rank that
/// share_out gives it, so that files say nothing of the ranks but their number: model.safetensors
/// and optimizer.safetensors, or with several ranks model-00001-of-00003.safetensors, an index, and
/// optimizer-00001-of-00003.safetensors. With several copies of the model (HSDP) the first writes.
class CheckpointSave {
 public:
  enum class Mode {
    kNow,     ///< written by commit(); the state must stay as it is until then
    kBeside,  ///< from a copy, by a thread that begins at once; the state may change
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
  /// The same for pieces of the whole model's state (optim::StateTensor; the name "" means values);
  /// the ranks of the group have all pieces together, and each element once.
  CheckpointSave(const parallel::FlatLayout& whole, std::vector<optim::StateTensor> pieces,
                 comm::Group& group, const Options& options);
  /// Ends what was not committed: nothing of it stays.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  std::int64_t step() const { return options_.step; }
  /// Whether commit() would wait for this rank's files no longer.
  bool finished() const { return finished_; }
  /// Returns the checkpoint's path once all of it is on the disk, read back, and in place. Every
  /// rank must call it, once. Throws on all ranks what went wrong on one; the checkpoints before
  /// this one stay then.
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
  int parts_size_ = 1;  // ranks that have parts of parameters: of products, or some of the experts
  int parts_rank_ = 0;
  parallel::PipelinePart* pipeline_;  // null: this rank has the whole model
  std::size_t first_file_ = 0;        // of this rank of a pipeline
  std::size_t num_files_ = 1;
  std::vector<std::string> contents_;  // of the files of each rank of a pipeline
  std::vector<int> takers_;            // the number of the writer of each parameter and its state
  std::vector<File> files_;
  std::optional<parallel::WholeState> whole_;     // where this rank's copy of the model is written
  std::optional<parallel::Assembled> assembled_;  // of its parts, where ranks have parts
  // Values of an adapter whose stages a pipeline has, on the rank that writes its file.
  std::vector<parallel::WholeTensor> adapter_;
  std::vector<std::unique_ptr<std::byte[]>> adapter_memory_;
  std::optional<ckpt::CheckpointWriter> writer_;  // of the lead
  std::optional<ckpt::CheckpointPart> part_;
  std::exception_ptr failure_;  // of the thread
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

}  // namespace atl::train
