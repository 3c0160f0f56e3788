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
#include "atoll/data/loader.h"
#include "atoll/metrics/sink.h"
#include "atoll/optim/schedule.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/config.h"
#include "atoll/train/corpus.h"
#include "atoll/train/evaluate.h"
#include "atoll/train/interrupt.h"
#include "atoll/train/island/rounds.h"
#include "atoll/train/membership.h"
#include "atoll/train/options.h"
#include "atoll/train/progress.h"
#include "atoll/train/ranks.h"
#include "atoll/train/step.h"
#include "atoll/train/trace.h"

namespace atl::train {

/// How a run ended.
struct TrainOutcome {
  std::int64_t step = 0;               ///< optimizer steps of the run so far
  std::optional<Evaluation> held_out;  ///< at the last step; nothing when interrupted before it
  std::filesystem::path checkpoint;    ///< the last one
  int signal = 0;                      ///< SIGINT or SIGTERM when that ended it, else 0
};

/// One training run: prepares data and model, goes on from the newest checkpoint if there is one,
/// and trains to the last step. The same configuration on the same directory always continues,
/// bitwise as if it had never stopped.
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
  void add_sink(metrics::Sink& sink) { extra_sinks_.push_back(&sink); }
  /// Called when this rank becomes the one that leads, because those before it were lost; adds the
  /// sinks that the lead has.
  void on_lead(std::function<void()> action) { on_lead_ = std::move(action); }
  /// Whether this is the rank that prints, and writes what is written once.
  bool is_lead() const { return ranks_->is_lead(); }
  /// `tell` is called on this rank after each step, with the steps taken so far.
  void on_step(std::function<void(std::int64_t step)> tell) { tell_step_ = std::move(tell); }
  /// The step that run() begins with: 0, or a checkpoint's.
  std::int64_t first_step() const { return position_.step; }

  /// Trains, evaluates, saves. Throws Error(kNumeric) naming the samples of a step that is not
  /// finite (train.on_nonfinite = stop), Error(kIo) when a checkpoint cannot be written; the
  /// checkpoints before it stay.
  TrainOutcome run();

 private:
  struct Interval;  // what the next step line averages over
  // What a rank tells the others when it enters a world.
  struct Hello {
    double has_state = 0;
    double old_rank = -1, old_size = 0;
    double steps_taken = 0, committed = 0;
  };

  Trainer(const TrainConfig& config, const Settings& settings, std::unique_ptr<comm::World> own);
  void prepare();
  void prepare_data();
  void prepare_device();
  void agree_on_bf16(const std::string& before, int decider);
  void begin();
  void open_log();
  std::vector<Hello> enter_world();
  std::vector<Hello> enter_next_world();
  void regroup(const std::string& why);
  void agree_on_step(const std::vector<Hello>& hellos);
  void take_over(const std::vector<Hello>& hellos);
  void share_position(int holder);
  void account(const StepResult& result);
  void open_loader();
  void open_rounds(const std::filesystem::path& checkpoint);
  island::RunIdentity identity() const;
  // Whether there is a next step: an island may have to wait for others, and its run may be over.
  bool take_next(const InterruptGuard& interrupt, ProgressBar& bar);
  bool is_over(const InterruptGuard& interrupt) const;
  void share_facts(const StepResult& result, double seconds, Interval& interval);
  void compare_replicas();
  void open_state(const PreparedCorpus& corpus);
  void stop_at_end_of_turn(const Tokenizer& tokenizer);
  void begin_or_resume();
  void resume(const ckpt::CheckpointInfo& newest);
  void check_settings_of(const Position& position) const;
  void announce() const;
  StepResult step();
  void handle_nonfinite(const StepResult& result);
  void report(const StepResult& result, double lr, Interval& interval, ProgressBar& bar);
  void take_one_step(const InterruptGuard& interrupt, Interval& interval, ProgressBar& bar);
  void after_step(const InterruptGuard& interrupt, ProgressBar& bar);
  int stopping(const InterruptGuard& interrupt) const;
  int asked_to_stop(const InterruptGuard& interrupt);
  // Nothing when a signal came meanwhile.
  std::optional<Evaluation> evaluate_held_out(const InterruptGuard& interrupt, ProgressBar& bar,
                                              bool is_repeated);
  void record(metrics::Record record);
  void load_base();
  void check_base_of(const std::filesystem::path& checkpoint, const std::string& base_hash) const;
  void save();
  void begin_save(CheckpointSave::Mode mode);
  void finish_save();
  // Begins and writes the trace where the steps that it covers begin and end.
  void keep_trace(bool is_over);
  metrics::Timeline* timeline() { return trace_ ? &trace_->timeline() : nullptr; }
  std::filesystem::path checkpoint_root() const;

  const TrainConfig& config_;
  const Settings& settings_;
  std::unique_ptr<comm::World> own_world_;  // unless somebody else has it
  comm::World* world_ = nullptr;
  Membership* membership_ = nullptr;  // null: ranks do not change
  std::optional<Ranks> ranks_;
  std::unique_ptr<comm::Group> kv_copies_;  // ranks with the same key-value heads
  std::filesystem::path dir_;
  std::unique_ptr<ckpt::RunLock> lock_;
  std::optional<PreparedCorpus> corpus_;
  std::optional<TrainSamples> samples_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<TrainState> state_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<IslandRounds> rounds_;  // null: the run has no islands
  std::int64_t next_batch_ = -1;          // of the run's order, with rounds_
  std::int64_t schedule_step_ = 0;        // of the next step's learning rate
  std::int64_t steps_left_ = 0;           // until the run ends, if islands stay as fast as they are
  std::filesystem::path base_;  // what model.from stands for; a run's own checkpoints may move on
  CarriedFiles carried_;
  Position position_;
  optim::Schedule schedule_;
  std::unique_ptr<metrics::Sink> jsonl_;
  std::vector<metrics::Sink*> extra_sinks_;
  std::function<void(std::int64_t)> tell_step_;
  double peak_flops_ = 0;     // of all ranks
  int signal_ = 0;            // that any rank was sent
  double waited_before_ = 0;  // seconds, until the last step's facts
  std::chrono::steady_clock::time_point step_began_;
  double step_seconds_ = 0;  // of the last one that nothing broke off
  bool change_wanted_ = false;
  StepProgress progress_;  // of the step that is under way
  std::int64_t evaluated_step_ = -1;
  std::int64_t first_step_ = 0;       // of this start of the run
  int old_rank_ = -1, old_size_ = 0;  // in the world before
  std::chrono::steady_clock::time_point regroup_began_ = std::chrono::steady_clock::now();
  std::function<void()> on_lead_;
  std::int64_t skipped_in_a_row_ = 0;
  std::int64_t saved_step_ = -1;
  std::filesystem::path last_checkpoint_;
  std::unique_ptr<CheckpointSave> saving_;  // that is not in place yet
  bool all_have_saved_ = false;             // their parts of saving_, after the last step
  std::optional<Trace> trace_;
  bool is_traced_ = false;  // what log.trace asks for is done
};

}  // namespace atl::train
