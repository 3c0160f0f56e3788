#pragma once

// When a run writes checkpoints, and which checkpoint is the last.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "atoll/ckpt/checkpoint.h"
#include "atoll/metrics/observer.h"
#include "atoll/metrics/timeline.h"
#include "atoll/train/checkpoint/contents.h"
#include "atoll/train/config/config.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// Writes the checkpoints of a run, one at a time. Every rank has one object, and all ranks make
/// the same calls, except where a comment says otherwise.
class Saver {
 public:
  /// `config` must outlive this. The directory of checkpoints need not exist.
  explicit Saver(const TrainConfig& config)
      : root_(std::filesystem::path(config.run.dir) / "checkpoints"),
        settings_(config.checkpoint) {}

  /// The observer of this rank's checkpoints; must outlive this.
  void observe(metrics::Observer& observer) { observer_ = &observer; }

  /// What a checkpoint is made from; everything except `extra` only needs to outlive the call.
  struct Source {
    TrainState& state;
    const Position& position;
    const CarriedFiles& carried;
    const std::filesystem::path& base;  ///< LoRA: the base model's directory
    ExtraPart extra;
  };

  /// The newest complete checkpoint, verified with `threads`; nothing where there is none. Removes
  /// checkpoints that were left unfinished. Only the lead calls it.
  std::optional<ckpt::CheckpointInfo> find_newest(ThreadPool& threads) const;
  /// The checkpoint of this step, which another rank has verified.
  ckpt::CheckpointInfo at(std::int64_t step) const { return ckpt::checkpoint_at(root_, step); }
  /// The path of the checkpoint of this step, whether it exists or not.
  std::filesystem::path path_of(std::int64_t step) const;
  /// The run goes on from the checkpoint of this step, or from ranks that wrote it; -1: from none.
  void go_on_from(std::int64_t step);
  /// Moves checkpoints that are newer than that step out of the way. Only the lead calls it.
  void set_aside_newer() const;

  /// Writes a checkpoint; with checkpoint.async it is written in the background of the steps that
  /// follow. `timeline`, here and below: where to record the time it takes; null: nowhere.
  void save_in_passing(const Ranks& ranks, Source source, metrics::Timeline* timeline);
  /// Writes a checkpoint, after the checkpoint that is under way.
  void save(const Ranks& ranks, Source source, metrics::Timeline* timeline);
  /// Commits the checkpoint that is under way, if there is one. An error on one rank is thrown on
  /// all ranks; the earlier checkpoints stay then.
  void finish(const Ranks& ranks, metrics::Timeline* timeline);
  /// Drops the checkpoint that is under way and removes its files, because ranks were lost and
  /// cannot commit it. Waits for this rank's background thread. Does not need the other ranks.
  void abandon() { under_way_.reset(); }

  /// Whether this rank has written its part of the checkpoint under way. Other ranks need to know.
  bool has_written() const { return under_way_ != nullptr && under_way_->finished(); }
  /// Sets whether all ranks have said that has_written() is true.
  void all_have_written(bool all) { all_have_written_ = all; }
  /// Commits the checkpoint under way if all ranks had written their parts after the last step.
  void finish_if_written(const Ranks& ranks, metrics::Timeline* timeline);

  /// The step of the last committed checkpoint; -1: there is none.
  std::int64_t saved_step() const { return saved_step_; }
  /// Its path; empty: there is none.
  const std::filesystem::path& last_checkpoint() const { return last_checkpoint_; }
  /// The checkpoints of these steps stay whatever checkpoint.keep says, from the next pruning on.
  void spare(std::set<std::int64_t> steps) { spared_ = std::move(steps); }
  /// Removes the checkpoints that checkpoint.keep does not keep. Every rank must call it.
  void prune(const Ranks& ranks) const;
  /// Whether the checkpoint of this step is the last committed one, or under way.
  bool has(std::int64_t step) const;

 private:
  void begin(const Ranks& ranks, Source source, CheckpointSave::Mode mode,
             metrics::Timeline* timeline);

  std::filesystem::path root_;
  const CheckpointSettings& settings_;
  metrics::Observer* observer_ = nullptr;
  std::unique_ptr<CheckpointSave> under_way_;  // not in place yet
  bool all_have_written_ = false;              // their parts of it, after the last step
  std::int64_t saved_step_ = -1;
  std::filesystem::path last_checkpoint_;
  std::set<std::int64_t> spared_;
};

}  // namespace atl::train
