#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "atoll/train/loop/sync.h"
#include "atoll/train/loop/train_run.h"

namespace atl::train {

/// One training run: prepares data and model, goes on from the newest checkpoint if there is one,
/// and trains to the last step. The same configuration on the same directory always continues,
/// bitwise as if it had never stopped. This is the loop; a Sync says which steps it takes, and does
/// what others want between them.
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
  /// The same where `source` makes the micro-batches of each step; it must outlive the trainer.
  Trainer(const TrainConfig& config, const Settings& settings, comm::World& world,
          StepSource& source);
  /// A run of this process alone.
  Trainer(const TrainConfig& config, const Settings& settings);
  ~Trainer();

  /// Where metrics go beside metrics.jsonl, on the rank that leads. The sink must outlive the
  /// trainer.
  void add_sink(metrics::Sink& sink) { run_.reporter.add_sink(sink); }
  /// Who is told what happens from here on, on the rank that leads. The observer must outlive the
  /// trainer.
  void observe(metrics::Observer& observer);
  /// Called when this rank becomes the one that leads, because those before it were lost; adds the
  /// sinks that the lead has.
  void on_lead(std::function<void()> action) { run_.on_lead = std::move(action); }
  /// Whether this is the rank that prints, and writes what is written once.
  bool is_lead() const { return run_.is_lead(); }
  /// `tell` is called on this rank after each step, with the steps taken so far.
  void on_step(std::function<void(std::int64_t step)> tell) { run_.tell_step = std::move(tell); }
  /// With eval.samples, `make` is called on the rank that leads after each evaluation, with the
  /// steps taken so far and their checkpoint; the other ranks wait meanwhile.
  void on_samples(
      std::function<void(std::int64_t step, const std::filesystem::path& checkpoint)> make) {
    run_.make_samples = std::move(make);
  }
  /// What a checkpoint takes on disk, about: f32 values and two moments of what is trained.
  std::uint64_t checkpoint_bytes() const;
  /// The step that run() begins with: 0, or a checkpoint's.
  std::int64_t first_step() const { return run_.position.step; }

  /// Trains, evaluates, saves. Throws Error(kNumeric) naming the samples of a step that is not
  /// finite (train.on_nonfinite = stop), Error(kIo) when a checkpoint cannot be written; the
  /// checkpoints before it stay.
  TrainOutcome run();

 private:
  void prepare();
  TrainOutcome loop();
  std::string recovery_hint();

  TrainRun run_;
  std::unique_ptr<Sync> sync_;
};

}  // namespace atl::train
