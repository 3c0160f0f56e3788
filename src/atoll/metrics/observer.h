#pragma once

// The interface by which a run reports its progress while it trains.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace atl::metrics {

/// One step, as the lead rank knows it.
struct StepFacts {
  std::int64_t step = 0;    ///< steps of the run so far, this one included
  double time_s = 0;        ///< end of the step, on this process's steady clock
  double seconds = 0;       ///< duration of the step
  double loss = 0;          ///< nats per token; may be NaN or infinite
  double grad_norm = 0;     ///< before clipping
  std::int64_t tokens = 0;  ///< trained on in this step
  /// Seconds of a micro batch on each rank, forward and backward; empty where there is one rank.
  std::vector<double> rank_seconds;
};

/// What a run does between two steps, when no step comes for a while.
enum class Pause : std::uint8_t {
  kEvaluation,
  kIslands,  ///< waits for other islands
  kRegroup,  ///< ranks were lost; connects the ranks that are left
};

/// Is told of the progress of a run. Called on the training thread of the lead rank: slow work
/// belongs on a thread of the observer's own.
class Observer {
 public:
  virtual ~Observer() = default;
  /// A step has ended. A step whose loss or gradient is not finite is reported too.
  virtual void stepped(const StepFacts& facts) = 0;
  /// No step comes until resumed(), because the run does this.
  virtual void paused(Pause what) = 0;
  virtual void resumed() = 0;
  /// A checkpoint of this step is being written, from here to checkpoint_saved().
  virtual void checkpoint_begun(std::int64_t step) = 0;
  /// That checkpoint is complete, at `path`.
  virtual void checkpoint_saved(const std::filesystem::path& path) = 0;
  /// Ranks were lost after `step` steps; of `before` ranks `now` go on.
  virtual void ranks_lost(std::int64_t step, int before, int now, const std::string& why) = 0;
};

/// Passes every call on to several observers, in the order in which they were added.
class Observers : public Observer {
 public:
  /// `observer` must outlive this.
  void add(Observer& observer) { list_.push_back(&observer); }
  bool is_empty() const { return list_.empty(); }

  void stepped(const StepFacts& facts) override {
    for (Observer* one : list_) one->stepped(facts);
  }
  void paused(Pause what) override {
    for (Observer* one : list_) one->paused(what);
  }
  void resumed() override {
    for (Observer* one : list_) one->resumed();
  }
  void checkpoint_begun(std::int64_t step) override {
    for (Observer* one : list_) one->checkpoint_begun(step);
  }
  void checkpoint_saved(const std::filesystem::path& path) override {
    for (Observer* one : list_) one->checkpoint_saved(path);
  }
  void ranks_lost(std::int64_t step, int before, int now, const std::string& why) override {
    for (Observer* one : list_) one->ranks_lost(step, before, now, why);
  }

 private:
  std::vector<Observer*> list_;
};

/// Calls paused() here and resumed() at the end of the block; nothing where `observer` is null.
class ScopedPause {
 public:
  ScopedPause(Observer* observer, Pause what) : observer_(observer) {
    if (observer_ != nullptr) observer_->paused(what);
  }
  ~ScopedPause() {
    if (observer_ != nullptr) observer_->resumed();
  }
  ScopedPause(const ScopedPause&) = delete;
  ScopedPause& operator=(const ScopedPause&) = delete;

 private:
  Observer* observer_;
};

}  // namespace atl::metrics
