#pragma once

// The runs, studies and ledgers below some directories, as they are found and as they grow.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/watch/run_log.h"

namespace atl::watch {

/// How a run is.
enum class RunState : std::uint8_t {
  kRunning,   ///< a process here has its lock, or none is seen and its file grew in the last minute
  kFinished,  ///< it has taken all its steps, or has said that nothing is left to do
  kStopped,   ///< nobody has it, and its last step is in a checkpoint
  kLost,      ///< nobody has it, and steps that were taken are in no checkpoint
};
inline constexpr std::size_t kNumRunStates = 4;
/// "running", ...
const char* name_of(RunState state);

/// A line of a file beside a run, as it is: a JSON object.
struct SideLines {
  std::uint64_t bytes = 0;  ///< of the file when it was read
  std::vector<std::string> lines;
};

/// One run.
struct WatchedRun {
  std::string id;  ///< its directory, as the user would write it
  std::filesystem::path dir;
  std::shared_ptr<RunLog> log;  // shared: a query goes on when the run leaves the table

  // What a scan finds; read under the table's lock.
  RunState state = RunState::kStopped;
  std::string holder;  ///< who has it: "process 4711 on alpha"
  std::vector<std::pair<std::string, std::string>> settings;  ///< key, value as TOML
  std::vector<std::pair<std::int64_t, double>> checkpoints;  ///< step, Unix seconds; also past ones
  SideLines alerts, notes, samples;
  std::string ranks;  ///< ranks.json: what ranks did with their time; empty: none
  double ranks_changed_s = 0;
  std::int64_t finished_step = -1;  ///< as finished.json has it; -1: it has not finished
  double finished_changed_s = 0;
  std::filesystem::path trace;  ///< of some steps (log.trace); empty: there is none
  double changed_s = 0;         ///< Unix seconds of the last change of its metrics
};

/// Finds runs and reads them. update() is for one thread, the others for any.
class RunTable {
 public:
  static constexpr std::size_t kMaxRuns = 2000;

  /// `roots`: a run, or directories with runs in them, to kMaxDepth. `cache_bytes`: for records of
  /// all runs together.
  RunTable(std::vector<std::filesystem::path> roots, std::size_t cache_bytes);

  /// Looks for new runs and for what is new in those it has, for no longer than some hundred
  /// milliseconds. Returns the ids of those that changed.
  std::set<std::string> update();
  /// Whether update() has more to read at once.
  bool has_more() const { return has_more_; }

  /// Every run, by id.
  std::vector<WatchedRun> runs() const;
  /// One run; false: there is none of that id.
  bool find(const std::string& id, WatchedRun& run) const;
  /// Directories with a study or a ledger in them, by id.
  std::map<std::string, std::filesystem::path> studies() const;
  std::map<std::string, std::filesystem::path> ledgers() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMaxDepth = 6;

  void scan(const std::filesystem::path& dir, int depth);
  bool refresh(WatchedRun& run, const std::set<std::string>& locks) const;

  const std::vector<std::filesystem::path> roots_;
  const std::size_t cache_bytes_;
  Clock::time_point scanned_at_{};
  bool has_more_ = false;

  mutable std::mutex mutex_;
  std::map<std::string, WatchedRun> runs_;
  std::map<std::string, std::filesystem::path> studies_;
  std::map<std::string, std::filesystem::path> ledgers_;
};

}  // namespace atl::watch
