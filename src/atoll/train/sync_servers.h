#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "atoll/train/evaluations.h"
#include "atoll/train/server_worker.h"
#include "atoll/train/step_telemetry.h"
#include "atoll/train/sync.h"

namespace atl::train {

/// A worker of a run with parameter servers: it learns from servers what other workers do, and how
/// many steps are taken.
class ServerSync final : public Sync {
 public:
  /// Throws Error(kUser) where there are no servers, or the worker is not one rank.
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
  std::unique_ptr<ServerWorker> worker_;  // from open() on
  bool has_begun_ = false;                // false: stopped before
  ServerWorker::Turn made_;               // the step that next() came upon
  Turn turn_;
  Clock::time_point step_began_;
};

}  // namespace atl::train
