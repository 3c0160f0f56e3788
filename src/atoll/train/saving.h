#pragma once

// When a run's checkpoints are written, and which is the last.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "atoll/ckpt/checkpoint.h"
#include "atoll/metrics/observer.h"
#include "atoll/metrics/timeline.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/config.h"
#include "atoll/train/ranks.h"

namespace atl::train {

/// Writes the checkpoints of a run, one at a time. Every rank has one and calls the same, but where
/// it says otherwise.
class Saver {
 public:
  /// `config` must outlive this. The directory of checkpoints need not exist.
  explicit Saver(const TrainConfig& config)
      : root_(std::filesystem::path(config.run.dir) / "checkpoints"),
        settings_(config.checkpoint) {}

  /// Who is told of checkpoints on this rank; must outlive this.
  void observe(metrics::Observer& observer) { observer_ = &observer; }

  /// What a checkpoint is made of; all but `extra` must outlive the call alone.
  struct Source {
    TrainState& state;
    const Position& position;
    const CarriedFiles& carried;
    const std::filesystem::path& base;  ///< LoRA: the base model's directory
    ExtraPart extra;
  };

  /// The newest checkpoint that is whole, verified with `threads`; nothing where there is none.
  /// What others left unfinished is removed. Of the lead.
  std::optional<ckpt::CheckpointInfo> find_newest(ThreadPool& threads) const;
  /// The one of this step, which another rank has verified.
  ckpt::CheckpointInfo at(std::int64_t step) const { return ckpt::checkpoint_at(root_, step); }
  /// Where the one of this step is, or would be.
  std::filesystem::path path_of(std::int64_t step) const;
  /// The run goes on from the checkpoint of this step, or from ranks that wrote it; -1: from none.
  void go_on_from(std::int64_t step);
  /// Puts checkpoints aside that are newer than that. Of the lead.
  void set_aside_newer() const;

  /// Begins a checkpoint beside the steps that follow where checkpoint.async says so, else writes
  /// it. `timeline`, here and below: where to note what that takes; null: nowhere.
  void save_in_passing(const Ranks& ranks, Source source, metrics::Timeline* timeline);
  /// Writes a checkpoint, after the one that is under way.
  void save(const Ranks& ranks, Source source, metrics::Timeline* timeline);
  /// Puts the one that is under way into its place, if there is one. Throws on all ranks what went
  /// wrong on one; the checkpoints before it stay then.
  void finish(const Ranks& ranks, metrics::Timeline* timeline);
  /// Gives up the one that is under way, because ranks were lost: the next one takes its place.
  void abandon() { under_way_.reset(); }

  /// Whether this rank's part of the one under way is written: what the others want to know.
  bool has_written() const { return under_way_ != nullptr && under_way_->finished(); }
  /// All ranks have said that they have.
  void all_have_written(bool all) { all_have_written_ = all; }
  /// Finishes the one under way if all ranks had written their parts after the last step.
  void finish_if_written(const Ranks& ranks, metrics::Timeline* timeline);

  /// Of the last checkpoint in place; -1: there is none.
  std::int64_t saved_step() const { return saved_step_; }
  /// Its path; empty: there is none.
  const std::filesystem::path& last_checkpoint() const { return last_checkpoint_; }
  /// The checkpoints of these steps stay whatever checkpoint.keep says, from the next pruning on.
  void spare(std::set<std::int64_t> steps) { spared_ = std::move(steps); }
  /// Removes what checkpoint.keep does not keep. Every rank must call it.
  void prune(const Ranks& ranks) const;
  /// Whether a checkpoint of this step is the last in place, or under way.
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
