#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/ckpt/run_lock.h"
#include "atoll/comm/gpu_links.h"
#include "atoll/metrics/observer.h"
#include "atoll/optim/schedule.h"
#include "atoll/train/batches.h"
#include "atoll/train/island/rounds.h"
#include "atoll/train/regrouping.h"
#include "atoll/train/reporting.h"
#include "atoll/train/run_model.h"
#include "atoll/train/saving.h"
#include "atoll/train/server_sync.h"
#include "atoll/train/state_copies.h"
#include "atoll/train/stop_request.h"
#include "atoll/train/trace_window.h"

namespace atl::train {

/// How a run ended.
struct TrainOutcome {
  std::int64_t step = 0;               ///< optimizer steps of the run so far
  std::optional<Evaluation> held_out;  ///< at the last step; nothing when interrupted before it
  std::filesystem::path checkpoint;    ///< the last one
  int signal = 0;                      ///< the signal that ended it, else 0
};

/// One training run: prepares data and model, goes on from the newest checkpoint if there is one,
/// and trains to the last step. The same configuration on the same directory always continues,
/// bitwise as if it had never stopped. This is the loop; what it says, saves, and does with other
/// ranks than before is in reporting.h, saving.h, regrouping.h and redistribution.h.
class Trainer {
 public:
  /// `settings` are those of `config`; all of these must outlive the trainer. Takes the run
  /// directory's lock. Throws Error(kUser) for whatever is wrong with configuration, data or
  /// directory. Every rank of the world makes a trainer with the same settings; all share the run
  /// directory. What goes wrong on several of them is thrown on all, and printed where
  /// world.reports().
  Trainer(const TrainConfig& config, const Settings& settings, comm::World& world);
  /// A rank of a run whose ranks come and go: when one is lost, those that are left go on with what
  /// they hold in memory (launch.replicate), repeating one step at most. `membership` gives the
  /// worlds and must outlive the trainer.
  Trainer(const TrainConfig& config, const Settings& settings, Membership& membership);
  /// A run of this process alone.
  Trainer(const TrainConfig& config, const Settings& settings);
  ~Trainer();

  /// Where metrics go beside metrics.jsonl, on the rank that leads. The sink must outlive the
  /// trainer.
  void add_sink(metrics::Sink& sink) { reporter_.add_sink(sink); }
  /// Who is told what happens from here on, on the rank that leads. The observer must outlive the
  /// trainer.
  void observe(metrics::Observer& observer);
  /// Called when this rank becomes the one that leads, because those before it were lost; adds the
  /// sinks that the lead has.
  void on_lead(std::function<void()> action) { on_lead_ = std::move(action); }
  /// Whether this is the rank that prints, and writes what is written once.
  bool is_lead() const { return regrouping_.ranks().is_lead(); }
  /// `tell` is called on this rank after each step, with the steps taken so far.
  void on_step(std::function<void(std::int64_t step)> tell) { tell_step_ = std::move(tell); }
  /// With eval.samples, `make` is called on the rank that leads after each evaluation, with the
  /// steps taken so far and their checkpoint; the other ranks wait meanwhile.
  void on_samples(
      std::function<void(std::int64_t step, const std::filesystem::path& checkpoint)> make) {
    make_samples_ = std::move(make);
  }
  /// What a checkpoint takes on disk, about: f32 values and two moments of what is trained.
  std::uint64_t checkpoint_bytes() const;
  /// The step that run() begins with: 0, or a checkpoint's.
  std::int64_t first_step() const { return position_.step; }

  /// Trains, evaluates, saves. Throws Error(kNumeric) naming the samples of a step that is not
  /// finite (train.on_nonfinite = stop), Error(kIo) when a checkpoint cannot be written; the
  /// checkpoints before it stay.
  TrainOutcome run();

 private:
  using Clock = std::chrono::steady_clock;

  // Before the first step: trainer.cpp.
  void prepare();
  void prepare_data();
  void open_state();
  void begin_or_resume();
  void resume(const ckpt::CheckpointInfo& newest);
  void describe_position();
  void agree_on_bf16(const std::string& before, int decider);
  void measure_rates();
  void make_rounds();
  // The steps: trainer_run.cpp.
  TrainOutcome loop();
  std::string what_is_left();
  void end(TrainOutcome& outcome);
  bool is_over() const;
  bool stops_early() const;
  bool has_finished() const;
  std::optional<Evaluation> evaluate_last();
  void judge(const Evaluation& held_out);
  void sample();
  void tell_best() const;
  // Whether there is a next step: an island may have to wait for others, and its run may be over.
  bool take_next();
  void take_one_step();
  StepResult step();
  void report_step(const StepResult& result, double lr);
  void account(const StepResult& result);
  void handle_skipped(const StepResult& result);
  void handle_without_loss();
  bool has_loss_within(std::int64_t num_batches) const;
  void save_before_error();
  void handle_nonfinite(const StepResult& result);
  std::int64_t asked_trace_steps();
  void tell_observer(const StepResult& result, std::int64_t step);
  void share_facts(const StepResult& result, double step_seconds);
  void compare_replicas();
  bool is_due(std::int64_t every) const;
  void after_step();
  std::optional<Evaluation> evaluate(bool is_repeated);  // nothing: a signal came
  Saver::Source to_save() const;
  // With parameter servers: trainer_servers.cpp.
  void check_servers();
  void make_servers();
  TrainOutcome loop_with_servers();
  void account_with_servers(const ServerSync::Turn& turn);
  void save_with_servers(std::int64_t step);
  void end_with_servers(TrainOutcome& outcome);
  // With other ranks: trainer_regroup.cpp.
  void regroup(const std::string& why);
  void leave(const std::string& why);
  [[noreturn]] void save_copies(const std::string& why);
  std::string write_copies(comm::World& left);
  void copy_state();
  void take_over(const std::vector<Hello>& hellos);
  void agree_on_step(const std::vector<Hello>& hellos);
  void share_position(int holder);

  Ranks& ranks() { return regrouping_.ranks(); }
  const Ranks& ranks() const { return regrouping_.ranks(); }
  TrainState& state() const { return model_->state(); }
  // The batch of the next step, in the run's order.
  std::int64_t next_batch() const { return rounds_ ? next_batch_ : position_.step; }

  const TrainConfig& config_;
  const Settings& settings_;
  Regrouping regrouping_;
  Reporter reporter_{config_};
  std::function<void(std::int64_t)> tell_step_;
  std::function<void()> on_lead_;
  std::function<void(std::int64_t, const std::filesystem::path&)> make_samples_;
  metrics::Observer* observer_ = nullptr;

  std::unique_ptr<ckpt::RunLock> lock_;  // of the lead
  std::optional<PreparedCorpus> corpus_;
  std::optional<RunModel> model_;
  std::unique_ptr<comm::GpuLinksUse> gpu_links_;  // null: ranks exchange by host memory
  std::optional<StateCopies> copies_;  // where ranks that are lost may have parts of the model
  std::optional<Batches> batches_;
  std::optional<IslandRounds> rounds_;   // nothing: the run has no islands
  std::unique_ptr<ServerSync> servers_;  // null: ranks add up gradients among themselves
  std::optional<StopRequest> stop_;      // while run() is under way
  optim::Schedule schedule_;

  Position position_;
  std::int64_t first_step_ = 0;     // of this start of the run
  std::int64_t next_batch_ = -1;    // of the run's order, with rounds_
  std::int64_t schedule_step_ = 0;  // of the next step's learning rate
  std::int64_t steps_left_ = 0;     // until the run ends, if islands stay as fast as they are
  StepProgress progress_;           // of the step that is under way
  Clock::time_point step_began_;
  double step_seconds_ = 0;           // of the last one that nothing broke off
  double waited_before_ = 0;          // seconds, until the last step's facts
  std::vector<double> rank_seconds_;  // a micro-batch of the last step, on each rank of several
  std::int64_t evaluated_step_ = -1;
  std::int64_t together_step_ = 0;  // the last before the present one after which all ranks agreed
  std::optional<Evaluation> last_held_out_;  // of evaluated_step_
  std::int64_t skipped_in_a_row_ = 0;        // as they were not finite
  bool change_wanted_ = false;
  Clock::time_point look_for_request_at_;
  std::filesystem::path asked_trace_;  // of the lead: the file of the last request

  // Last, because what they have under way reads the state.
  Saver saver_{config_};
  TraceWindow trace_{config_.log};
};

}  // namespace atl::train
