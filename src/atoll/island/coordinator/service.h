#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/failure_detector.h"
#include "atoll/island/coordinator/island_table.h"

namespace atl::island {

/// Where a coordinator lives.
struct ServiceOptions {
  std::filesystem::path dir;                      ///< of the ledger; made if missing
  std::string listen = "127.0.0.1:0";             ///< HOST:PORT; port 0 picks one
  std::optional<std::filesystem::path> identity;  ///< see wire::ServerOptions
  /// A file with the secret that islands must know, made if it is missing; see wire::Secret.
  std::optional<std::filesystem::path> secret = {};
  FailureDetectorLimits failure_detector = {};  ///< of islands that are silent
  /// Told when an island is gone or silent, with the outer steps so far and why; on a thread of the
  /// service. May be empty.
  std::function<void(std::int64_t outer_step, const std::string& why)> on_island_lost = {};
};

/// Where a run is, for those who look.
struct CoordinatorStatus {
  bool has_begun = false;        ///< an island has said what the run is
  std::int64_t outer_steps = 0;  ///< that are committed and stand
  // In the ledger, of all starts:
  std::int64_t attempts = 0;  ///< at outer steps
  std::int64_t commits = 0;   ///< some may be void now
  std::int64_t voids = 0;     ///< commits that no island has the state of any more
  // Of this start:
  std::int64_t islands_lost = 0;                   ///< times that an island was gone or silent
  std::int64_t connections = 0;                    ///< now
  std::array<int, kNumIslandStates> islands = {};  ///< by IslandState
  std::int64_t batches_consumed = 0;
  std::int64_t batches_leased = 0;
  std::int64_t batches = 0;  ///< of the run
  // Of the newest commit:
  double committed_at_s = 0;  ///< since 1970; 0: none yet, as in the following
  double exchange_seconds = 0;
  double round_seconds = 0;
  int contributions = 0;
};

/// A run's coordinator: the state machine (coordinator.h) over its ledger, with the islands'
/// connections, on threads of its own. What the run is, the first island says; it stands in
/// `dir`/run.json then. Starting it again on the same directory goes on as if it had never stopped.
class CoordinatorService {
 public:
  /// Listens when it returns. Throws what Ledger::open and wire::Server throw.
  explicit CoordinatorService(const ServiceOptions& options);
  ~CoordinatorService();
  CoordinatorService(const CoordinatorService&) = delete;
  CoordinatorService& operator=(const CoordinatorService&) = delete;

  /// HOST:PORT with the port that was picked.
  std::string address() const;
  /// Whether all of the run is committed and its islands are gone.
  bool is_finished() const;
  /// Where the run is, as it was at the last event or tick. From any thread.
  CoordinatorStatus status() const;
  /// What ended it before that: a disk that is full, islands that cannot agree.
  std::optional<Error> failure() const;
  /// Ends all connections and closes the ledger.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::island
