#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/train/loop/evaluations.h"
#include "atoll/train/loop/step_telemetry.h"
#include "atoll/train/loop/sync.h"
#include "atoll/train/server/worker.h"

namespace atl::train {

/// A worker of a run with parameter servers. The servers tell it how far the other workers are, and
/// how many steps are taken.
class ServerSync final : public Sync {
 public:
  /// Throws Error(kUser) where no server is set, or the worker has more than one rank.
  explicit ServerSync(TrainRun& run);

  void open(const std::filesystem::path& checkpoint) override;
  void join(const std::vector<Hello>& hellos) override;
  void begin() override;
  std::optional<Turn> next() override;
  std::optional<StepResult> step(const Turn& turn) override;
  void after(const StepResult& result) override;
  TrainOutcome end() override;

 private:
  using Clock = std::chrono::steady_clock;

  bool wants_stop() const { return run_.stop->here() != 0; }
  void save(std::int64_t step);
  void evaluate_in_passing();

  TrainRun& run_;
  StepTelemetry telemetry_{run_};
  Evaluations evaluations_{run_};
  std::unique_ptr<ServerWorker> worker_;  // set by open()
  bool has_begun_ = false;                // false: stopped before the first step
  ServerWorker::Turn made_;               // the turn that next() got from worker_
  Turn turn_;
  Clock::time_point step_began_;
};

}  // namespace atl::train
