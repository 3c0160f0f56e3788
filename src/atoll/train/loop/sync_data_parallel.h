#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/train/checkpoint/state_copies.h"
#include "atoll/train/loop/evaluations.h"
#include "atoll/train/loop/step_telemetry.h"
#include "atoll/train/loop/sync.h"

namespace atl::train {

/// Ranks that take each step together. When a rank is lost, the work under way is broken off, the
/// remaining ranks regroup, and next() goes on from the state in their memory.
class DataParallelSync : public Sync {
 public:
  explicit DataParallelSync(TrainRun& run) : run_(run) {}

  void open(const std::filesystem::path& checkpoint) override;
  void join(const std::vector<Hello>& hellos) override;
  void begin() override;
  std::optional<Turn> next() override;
  std::optional<StepResult> step(const Turn& turn) override;
  void after(const StepResult& result) override;
  TrainOutcome end() override;

 protected:
  // The next step; nothing: something else is due first.
  virtual std::optional<Turn> choose();
  // Whether the last step of this start is taken; whether the whole run has finished.
  virtual bool has_last_step() const;
  virtual bool has_finished() const;
  // Whether end() does the evaluation and checkpoint that are due after this step.
  virtual bool is_left_to_end() const;
  // Whether the model may have changed since the last step, without a step.
  virtual bool moves_without_step() const { return false; }
  // Called with each step before it is counted.
  virtual void stepped(const StepResult& /*result*/) {}
  // Called at the end: after the last checkpoint, after a signal, and as the very last.
  virtual void saved_last() {}
  virtual void stopped() {}
  virtual void stay() {}
  // Called when the ranks meet to regroup, and after they have regrouped.
  virtual void check_ranks(const std::vector<Hello>& /*hellos*/) const {}
  virtual void regrouped() {}

  double learning_rate() const { return run_.schedule.learning_rate(turn_.schedule_step); }

  TrainRun& run_;
  Turn turn_;  // under way
  bool change_wanted_ = false;

 private:
  using Clock = std::chrono::steady_clock;

  bool unless_lost(const std::function<void()>& action);
  StepResult train();
  void account(const StepResult& result);
  bool is_due(std::int64_t every) const;
  void do_what_is_due();
  void evaluate_and_save();
  bool is_over() const;
  void finish(TrainOutcome& outcome);
  // With other ranks: sync_regroup.cpp.
  void regroup(const std::string& why);
  [[noreturn]] void save_copies(const std::string& why);
  void copy_state();
  void agree_on_step(const std::vector<Hello>& hellos);

  StepTelemetry telemetry_{run_};
  Evaluations evaluations_{run_};
  std::optional<StateCopies> copies_;  // where ranks that are lost may have the only part
  StepProgress progress_;              // of the step under way
  Clock::time_point step_began_;
  std::int64_t together_step_ = 0;  // the last step before this one with equal values on all ranks
};

}  // namespace atl::train
