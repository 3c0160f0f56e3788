#pragma once

// The parts of one training run on one rank.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/ckpt/run_lock.h"
#include "atoll/comm/gpu_links.h"
#include "atoll/metrics/observer.h"
#include "atoll/optim/schedule.h"
#include "atoll/train/batches.h"
#include "atoll/train/regrouping.h"
#include "atoll/train/reporting.h"
#include "atoll/train/run_model.h"
#include "atoll/train/saving.h"
#include "atoll/train/stop_request.h"
#include "atoll/train/trace_window.h"

namespace atl::train {

/// What a run consists of. The trainer makes it; the classes that do the work of the run share it.
struct TrainRun {
  /// `where` is the world or the membership that Regrouping takes, or nothing. All must outlive
  /// this.
  template <typename... Where>
  TrainRun(const TrainConfig& with_config, const Settings& with_settings, Where&... where)
      : config(with_config), settings(with_settings), regrouping(with_config, where...) {}

  Ranks& ranks() { return regrouping.ranks(); }
  const Ranks& ranks() const { return regrouping.ranks(); }
  /// Whether this is the rank that prints, and writes what is written once.
  bool is_lead() const { return ranks().is_lead(); }
  TrainState& state() const { return model->state(); }
  bool is_island() const { return !config.island.coordinator.empty(); }
  /// The batch of the next step, in the run's order.
  std::int64_t batch() const { return next_batch ? *next_batch : position.step; }
  /// What a checkpoint is made of now.
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
  std::unique_ptr<comm::GpuLinksUse> gpu_links;  ///< null: ranks exchange by host memory
  std::optional<Batches> batches;
  std::optional<StopRequest> stop;  ///< while Trainer::run() is under way
  optim::Schedule schedule;

  Position position;
  std::int64_t first_step = 0;  ///< of this start of the run
  std::optional<std::int64_t>
      next_batch;  ///< of an island; nothing: steps have their batch's number
  std::int64_t evaluated_step = -1;
  std::int64_t skipped_in_a_row = 0;  ///< steps that were not finite
  double step_seconds = 0;            ///< of the last step that nothing broke off
  std::vector<double> rank_seconds;   ///< a micro-batch of the last step, on each rank of several
  /// What a checkpoint has beside the training state; empty: nothing.
  std::function<ExtraPart()> beside_state;

  // Last, because what they have under way reads the state.
  Saver saver{config};
  TraceWindow trace{config.log};
};

}  // namespace atl::train
