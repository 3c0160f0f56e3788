#pragma once

// The model that a rank trains: its device, its initial values, the files its checkpoints carry.

#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "atoll/base/files/lock.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/checkpoint/references.h"
#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/model/connect_ranks.h"

namespace atl::train {

/// The training state of one rank of a run, with its device.
class RunModel {
 public:
  /// On a device that open_run_device gave. `config` must outlive this.
  RunModel(const TrainConfig& config, std::unique_ptr<Device> device);

  /// Makes the training state of this rank for the present `ranks`: builds the model, allocates the
  /// memory, connects the ranks. Frees an earlier state first. Parameters have no values
  /// afterwards: call initialise() or load(). Throws Error(kUser) when settings do not fit the
  /// ranks or the device, Error(kResource) when the memory does not suffice.
  void open(const PreparedCorpus& corpus, Ranks& ranks);
  /// See StateOptions::change_model; before open().
  void change_with(std::function<void(nn::Model& model)> change) { change_ = std::move(change); }
  /// Gives the memory back.
  void close() { state_.reset(); }
  bool is_open() const { return state_ != nullptr; }

  /// Gives parameters and optimizer state the values that a new run begins with: those of
  /// model.from, or random ones of run.seed.
  void initialise();
  /// Reads the parameters from model.from; with LoRA these are the frozen ones.
  void load_base();
  /// Reads parameters and optimizer state from a checkpoint.
  Position load(const ckpt::CheckpointInfo& checkpoint);
  /// Updates the copy of the next rank's shard, where there is one (launch.replicate). Every rank
  /// must call it.
  void synchronise_replica(Ranks& ranks);

  TrainState& state() const { return *state_; }
  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }
  /// Where the model's head finds the facts of samples, of a run with preferences.
  nn::PreferenceSource& facts() const { return *facts_; }
  /// What answers are compared with; its address stays.
  const References& references() const { return references_; }
  void compare_with(References references) { references_ = std::move(references); }
  /// What ops are called with.
  Run run() const { return {.stream = stream_.get()}; }
  /// The directory that model.from was resolved to; empty: the model is new. It stays the same when
  /// the run that model.from names writes newer checkpoints.
  const std::filesystem::path& base() const { return base_; }
  const CarriedFiles& carried() const { return carried_; }

 private:
  const TrainConfig& config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  ModelGroups groups_;
  std::unique_ptr<TrainState> state_;
  std::shared_ptr<nn::PreferenceSource> facts_ = std::make_shared<nn::PreferenceSource>();
  References references_;
  model_dir::ModelPath base_;
  // Keep other runs from deleting the checkpoints.
  std::shared_ptr<DirectoryHold> from_hold_, base_hold_;
  CarriedFiles carried_;
  std::function<void(nn::Model& model)> change_;
};

}  // namespace atl::train
