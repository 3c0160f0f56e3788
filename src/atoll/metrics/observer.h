#pragma once

// What a run tells those who watch it while it trains, step by step.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace atl::metrics {

/// One step, as the rank that leads knows it.
struct StepFacts {
  std::int64_t step = 0;    ///< steps of the run so far, this one included
  double time_s = 0;        ///< of this process's steady clock, when the step had ended
  double seconds = 0;       ///< that the step took
  double loss = 0;          ///< nats a token; not finite where the step was not
  double grad_norm = 0;     ///< before clipping
  std::int64_t tokens = 0;  ///< trained on in this step
  /// What a micro-batch took on each rank, forward and backward; empty where there is one rank.
  std::vector<double> rank_seconds;
};

/// What a run does between two steps.
enum class Pause : std::uint8_t {
  kEvaluation,
  kIslands,  ///< waits for other islands
  kRegroup,  ///< meets the ranks that are left
};

/// Somebody who watches a run. Called on the thread that trains, on the rank that leads: what is
/// slow belongs on a thread of its own.
class Observer {
 public:
  virtual ~Observer() = default;
  /// A step is done, or was not finite.
  virtual void stepped(const StepFacts& facts) = 0;
  /// No step comes until resumed(): the run does something else.
  virtual void paused(Pause what) = 0;
  virtual void resumed() = 0;
  /// A checkpoint of this step is being written, from here to checkpoint_saved().
  virtual void checkpoint_begun(std::int64_t step) = 0;
  /// It is in its place.
  virtual void checkpoint_saved(const std::filesystem::path& path) = 0;
  /// Ranks were lost after so many steps, and the others go on.
  virtual void ranks_lost(std::int64_t step, int before, int now, const std::string& why) = 0;
};

/// Tells several what one is told, in their order.
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

/// paused() from here to the end of the block; nothing where `observer` is null.
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
