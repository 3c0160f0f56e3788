#pragma once

// The processes of a run that live on their own, islands or workers and servers: starts again those
// that die.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/processes/process.h"
#include "atoll/launch/process_group.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {

/// What a child is started with.
struct ChildPlan {
  std::string name;  ///< "island-1"
  std::vector<std::string> argv;
  bool shows_output = false;  ///< its lines are printed as they are; of others with the name before
  /// It serves the others: it gets no signals while these run, and ends when they have ended.
  bool is_server = false;
  /// What it gets when this process dies: a signal that asks it to save is for those who can
  /// without this process.
  int death_signal = 15;
};

/// Children of this process that are started again when they die.
class Children {
 public:
  explicit Children(int max_restarts) : max_restarts_(max_restarts) {}

  void add(ChildPlan plan);
  /// SIGUSR1 asks them to save and go on (run.on_signal): it ends nothing.
  void pass_usr1_on() { signals_.pass_usr1_on(); }
  /// Runs them, passes stop signals on, and returns the exit code once all have ended.
  /// `failure`: asked now and then what ends the run. Throws Error(kPeer) when one has died too
  /// often, naming it, or what `failure` gave; the others are then stopped with a checkpoint.
  int run(const std::function<std::optional<Error>()>& failure);

 private:
  using Clock = std::chrono::steady_clock;
  // A process, and after its death the next one.
  struct Entry {
    ChildPlan plan;
    std::unique_ptr<Child> child;
    LineReader lines;
    std::string last_line;
    int restarts = 0;
    bool is_done = false;
    Clock::time_point starts_at = {};
  };

  static void start(Entry& entry);
  void wait();
  static void say(Entry& entry, std::string_view line);
  void ended(Entry& entry, int status);
  void take(int signal);
  void ask_to_end(int signal);
  void pass_on(int signal) const;
  void stop(int signal);
  void end_servers();
  bool all_done() const;

  int max_restarts_;
  SignalFd signals_;  // before any thread is made
  std::vector<Entry> entries_;
  int signal_ = 0;                // that ends the run
  bool is_ending_ = false;        // all were asked to end
  std::optional<Error> failure_;  // that ends the run
  bool ends_servers_ = false;
  Clock::time_point kill_at_ = {};
};

/// The words that start `atoll train` on a recipe with these overrides, without those of the
/// settings `left_out`, which the caller sets for each process.
std::vector<std::string> train_words(const std::string& recipe,
                                     const std::vector<std::string>& overrides,
                                     const std::vector<std::string>& left_out);

}  // namespace atl::launch
