#pragma once

// Finds the runs, studies and ledgers below some directories, and follows them as they grow.

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

/// The state of a run.
enum class RunState : std::uint8_t {
  kRunning,   ///< a process here holds its lock, or it may run elsewhere and wrote lately
  kFinished,  ///< not running; has taken all its steps, or finished.json says so
  kStopped,   ///< not running; its last step is in a checkpoint, or its metrics are not read yet
  kLost,      ///< not running; steps after its last checkpoint are lost
};
inline constexpr std::size_t kNumRunStates = 4;
/// The name of a state: "running", ...
const char* name_of(RunState state);

/// The last lines of a JSON-lines file beside metrics.jsonl, unparsed.
struct SideLines {
  std::uint64_t bytes = 0;  ///< of the file when it was read
  std::vector<std::string> lines;
};

/// One run.
struct WatchedRun {
  std::string id;  ///< the path of its directory, normalized
  std::filesystem::path dir;
  std::shared_ptr<RunLog> log;  // shared with copies of this run

  // Filled in by RunTable::update().
  RunState state = RunState::kStopped;
  std::string holder;  ///< who holds its lock: "process 4711 on alpha"; or empty
  std::vector<std::pair<std::string, std::string>> settings;  ///< key, value as TOML
  std::vector<std::pair<std::int64_t, double>> checkpoints;   ///< step, Unix seconds; some removed
  SideLines alerts, notes, samples;
  std::string ranks;  ///< ranks.json: how ranks spend their time; empty: there is none
  double ranks_changed_s = 0;
  std::int64_t finished_step = -1;  ///< see metrics::finished_step()
  double finished_changed_s = 0;
  std::filesystem::path trace;  ///< the file with its trace (log.trace); empty: there is none
  double changed_s = 0;         ///< Unix seconds of the last change of its metrics
};

/// Finds runs and reads them. One thread calls update() and has_more(); any thread may call the
/// other functions.
class RunTable {
 public:
  static constexpr std::size_t kMaxRuns = 2000;

  /// `roots`: directories that are runs or have runs in them, up to kMaxDepth levels down.
  /// `cache_bytes`: for records in memory; each run gets a tenth.
  RunTable(std::vector<std::filesystem::path> roots, std::size_t cache_bytes);

  /// Looks for new runs every 2 seconds, and reads on in the known runs: metrics for about 200 ms,
  /// and the small files of all runs. Returns the ids of the runs that have changed; "" stands for
  /// new runs, studies or ledgers.
  std::set<std::string> update();
  /// Whether update() has left metrics unread; then call it again at once.
  bool has_more() const { return has_more_; }

  /// Copies of all runs, sorted by id.
  std::vector<WatchedRun> runs() const;
  /// Copies one run to `run`; false: there is no run with that id.
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
