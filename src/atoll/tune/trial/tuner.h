#pragma once

// What a study does next: no clock, no process, no file. The command and the simulator drive it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "atoll/tune/schedule/scheduler.h"
#include "atoll/tune/search/searcher.h"
#include "atoll/tune/trial/history.h"

namespace atl::tune {

/// A study without its recipe.
struct Problem {
  const Space& space;
  std::vector<Objective> objectives;
  std::string searcher = "gp";
  std::string scheduler = "none";
  Rules rules;
  int startup = 10;
  double resample = 0.25;           ///< pbt
  std::string explore = "perturb";  ///< pbt: "perturb" or "pb2"
  std::int64_t trials = 0;          ///< 0: no end
  std::int64_t tokens = 0;          ///< 0: no end
  std::vector<Units> starts = {};   ///< that are tried before the searcher is asked
};
Problem problem_of(const Study& study);

/// A trial that a worker is to train.
struct Job {
  int trial = 0;
  std::int64_t step = 0;  ///< to this one
};

/// Decides what comes next. All that it decides is given to `append` before anybody may act on it;
/// when that throws, nothing was decided.
class Tuner {
 public:
  using Append = std::function<void(std::span<const Event> events)>;

  /// Goes on from `past`. `problem`'s space must outlive this.
  Tuner(Problem problem, std::span<const Event> past, Append append);

  const History& history() const { return history_; }
  const Problem& problem() const { return problem_; }

  /// What a free worker is to do; nothing when it must wait for others, or all is done. First what
  /// was under way when a tuner was killed. `is_spent`: begin nothing new. `worker`: whom it is
  /// leased to, as in Event.
  std::optional<Job> next(bool is_spent = false, const std::string& worker = {});
  /// A worker on another machine still has that trial, or may have: it is not due until
  /// give_back().
  void hold(int trial) { running_.insert(trial); }
  /// A worker has given a job up, and nothing became of it: it is due again.
  void give_back(int trial) { running_.erase(trial); }
  /// What came of a job: values at its step.
  void result(int trial, Measurement measurement);
  /// The trial is over: its loss is not finite, or its settings do not go together.
  void failed(int trial, End how, const std::string& why);
  /// Whether trials are with workers.
  bool is_waiting() const { return !running_.empty(); }
  /// How many trials are with workers.
  int num_running() const { return static_cast<int>(running_.size()); }

 private:
  void record(std::vector<Event> events);
  std::optional<Job> take_due(const std::string& worker);
  ScheduleView schedule_view(bool is_spent) const;
  SearchView search_view() const;
  bool has_room(bool is_spent) const;
  bool is_spent() const;
  std::vector<Event> events_of(const std::vector<Move>& moves);
  std::optional<Event> suggest(const Move& move);
  Event fork(const Move& move, int number, const std::vector<Units>& together) const;
  std::vector<double> scalar_costs(const std::vector<const Measurement*>& measured) const;

  Problem problem_;
  History history_;
  Append append_;
  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::set<int> running_;
  int num_suggested_ = 0;      // forks are not
  bool is_exhausted_ = false;  // every point of the space is a trial
};

/// The settings of a point as a trial keeps them.
std::vector<std::pair<std::string, std::string>> settings_at(const Space& space,
                                                             const Units& units);

}  // namespace atl::tune
