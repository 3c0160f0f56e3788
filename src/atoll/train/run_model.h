#pragma once

// The model that a rank trains: where it computes, what it began with, what its checkpoints carry.

#include <filesystem>
#include <memory>

#include "atoll/base/lock.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/config.h"
#include "atoll/train/connect_ranks.h"
#include "atoll/train/corpus.h"

namespace atl::train {

/// The training state of one rank of a run, with its device.
class RunModel {
 public:
  /// On a device that open_run_device gave. `config` must outlive this.
  RunModel(const TrainConfig& config, std::unique_ptr<Device> device);

  /// Plans and takes the memory of this rank among `ranks`, in place of what there was. Parameters
  /// have no values then. Throws Error(kUser) where ranks, settings and memory do not fit.
  void open(const PreparedCorpus& corpus, Ranks& ranks);
  /// Gives the memory back.
  void close() { state_.reset(); }
  bool is_open() const { return state_ != nullptr; }

  /// Gives parameters and optimizer state the values that a new run begins with: those of
  /// model.from, or random ones of run.seed.
  void initialise();
  /// Gives the parameters those of model.from; with LoRA these are the frozen ones.
  void load_base();
  /// Gives them those of a checkpoint.
  Position load(const ckpt::CheckpointInfo& checkpoint);
  /// Brings the copy of the next rank's share up to date, where there is one (launch.replicate).
  /// Every rank must call it.
  void synchronise_replica(Ranks& ranks);

  TrainState& state() const { return *state_; }
  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }
  /// What ops are called with.
  Run run() const { return {.stream = stream_.get()}; }
  /// The directory that model.from stands for; empty: the model is new. A run's own checkpoints may
  /// move on meanwhile.
  const std::filesystem::path& base() const { return base_; }
  const CarriedFiles& carried() const { return carried_; }

 private:
  const TrainConfig& config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  ModelGroups groups_;
  std::unique_ptr<TrainState> state_;
  std::filesystem::path base_;
  std::shared_ptr<DirectoryHold> base_hold_;  // of its checkpoint, which another run may count
  CarriedFiles carried_;
};

}  // namespace atl::train
