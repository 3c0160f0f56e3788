#pragma once

// The parts of one training run on one rank.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/ckpt/run_lock.h"
#include "atoll/comm/gpu_links_use.h"
#include "atoll/metrics/observer.h"
#include "atoll/optim/schedule.h"
#include "atoll/train/checkpoint/run_model.h"
#include "atoll/train/checkpoint/saver.h"
#include "atoll/train/loop/step_source.h"
#include "atoll/train/ranks/stop_request.h"
#include "atoll/train/regroup/regrouping.h"
#include "atoll/train/report/reporting.h"
#include "atoll/train/report/trace_window.h"
#include "atoll/train/step/batches.h"

namespace atl::train {

/// The parts of a run. The trainer makes this struct; the classes that run the training share it.
struct TrainRun {
  /// `where` is the world or the membership that Regrouping takes, or nothing. All arguments must
  /// outlive this.
  template <typename... Where>
  TrainRun(const TrainConfig& with_config, const Settings& with_settings, Where&... where)
      : config(with_config), settings(with_settings), regrouping(with_config, where...) {}

  Ranks& ranks() { return regrouping.ranks(); }
  const Ranks& ranks() const { return regrouping.ranks(); }
  /// Whether this rank is the lead: it prints, and it writes the files that exist once for a run.
  bool is_lead() const { return ranks().is_lead(); }
  TrainState& state() const { return model->state(); }
  bool is_island() const { return !config.island.coordinator.empty(); }
  /// The number of the batch of the next step, in the run's order.
  std::int64_t batch() const { return next_batch ? *next_batch : position.step; }
  /// What the next checkpoint is made from.
  Saver::Source to_save() const;

  const TrainConfig& config;
  const Settings& settings;
  Regrouping regrouping;
  Reporter reporter{config};
  metrics::Observer* observer = nullptr;
  std::function<void(std::int64_t)> tell_step;
  std::function<void()> on_lead;
  std::function<void(std::int64_t, const std::filesystem::path&)> make_samples;

  std::unique_ptr<ckpt::RunLock> lock;  ///< of the lead
  std::optional<PreparedCorpus> corpus;
  std::optional<RunModel> model;
  std::unique_ptr<comm::GpuLinksUse> gpu_links;  ///< null: ranks exchange through host memory
  std::optional<Batches> batches;                ///< nothing where there is a step_source
  /// Who makes the micro-batches of each step in place of `batches`; null: nobody does.
  StepSource* step_source = nullptr;
  std::optional<StopRequest> stop;  ///< while Trainer::run() is under way
  optim::Schedule schedule;

  Position position;
  std::int64_t first_step = 0;  ///< of this start of the run
  std::optional<std::int64_t>
      next_batch;  ///< of an island; nothing: steps have their batch's number
  std::int64_t evaluated_step = -1;
  std::int64_t skipped_in_a_row = 0;  ///< steps that were not finite
  double step_seconds = 0;            ///< of the last step that was not broken off
  std::vector<double> rank_seconds;   ///< a micro-batch of the last step, on each rank of several
  /// The extra part of a checkpoint, besides the training state; empty: there is none.
  std::function<ExtraPart()> beside_state;

  // Last, because these members may be reading the state in the background.
  Saver saver{config};
  TraceWindow trace{config.log};
};

}  // namespace atl::train
