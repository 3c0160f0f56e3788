#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "atoll/island/coordinator/failure_detector.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// The number of a connection from an island to its coordinator; no number is used twice.
using ConnectionId = std::uint64_t;
inline constexpr ConnectionId kNoConnection = 0;

/// Longer than any run.
inline constexpr Seconds kForever = 1e12;

/// The state of an island's membership.
enum class IslandState {
  kJoining,  ///< has joined, and has nothing to do yet
  kSyncing,  ///< gets the run's state
  kActive,
  kSuspect,  ///< gone or silent, not for long: keeps its leases
  kOut,
};
inline constexpr int kNumIslandStates = 5;

/// "joining", "syncing", "active", "suspect", "out".
const char* name_of(IslandState state);

/// What an active island does for the outer step under way.
enum class Phase {
  kIdle,      ///< has no lease to train on
  kEarly,     ///< trains, since the middle of the round: not waited for
  kTraining,  ///< trains, and is waited for
  kReady,     ///< has offered its pseudo-gradient
  kExcluded,  ///< has, but it cannot be fetched
};
inline constexpr int kNumPhases = 5;

/// What the coordinator knows of an island.
struct Island {
  IslandId id = kNobody;
  std::string name;
  std::string address;
  std::string peer_token;  ///< as its newest Join told
  ConnectionId connection = kNoConnection;
  std::uint64_t last_sequence = 0;          ///< of that connection
  std::optional<FailureDetector> detector;  ///< of that connection
  Seconds held_back = 0;                    ///< see FailureDetector, as learned on those before
  Seconds suspect_since = -kForever;        ///< the last time
  bool counts = false;                      ///< while suspect: for the quorum
  /// Until it is active again: it was there before the coordinator restarted.
  bool is_awaited = false;
  /// It was a suspect, or the run ended without it, and it has not shown yet that it is up to date.
  bool is_behind = false;
  bool is_evicted = false;
  bool was_told_of_end = false;  ///< by Finish, on that connection
  bool has_saved = false;        ///< the final model, as it has said since it was told
  /// It was not there at the end, or went before it had saved the final model.
  bool lacks_final_state = false;
  int lost_at_end = 0;             ///< times that it went so
  std::uint64_t sync_request = 0;  ///< while syncing: sequence number of the newest that it got
  bool has_source = false;         ///< while syncing: was told where to fetch from
  bool is_fetching = false;        ///< while syncing: state has come in this outer step
  int overtaken = 0;               ///< outer steps that made its fetches void, until it contributes
  IslandId putter = kNobody;       ///< while syncing: who puts what it fetches to the coordinator
  std::int64_t claimed_step = -1;  ///< while syncing: the state that it has; -1: none
  std::vector<StateHash> claimed;  ///< that state; empty: what the log says
  double batches_per_second = 0;
  int strikes = 0;                    ///< wrong states in a row
  int drops = 0;                      ///< pseudo-gradients that came too late, in a row
  int missed = 0;                     ///< outer steps since its last contribution
  std::optional<Ready> ready;         ///< of the outer step under way
  std::optional<StateHash> prepared;  ///< of the attempt under way
  // With gossip:
  StateHash own_state;    ///< that it has, or is about to have; zero: not known
  StateHash wanted;       ///< while syncing: that it was told to get
  int disagreements = 0;  ///< with its partners on the result, in a row

  /// Notes which state it has, as far as is known.
  void claim(std::int64_t outer_step, std::vector<StateHash> hashes = {}) {
    claimed_step = outer_step;
    claimed = std::move(hashes);
  }
  IslandState state() const { return state_; }
  Phase phase() const { return phase_; }

 private:
  friend class IslandTable;
  IslandState state_ = IslandState::kOut;
  Phase phase_ = Phase::kIdle;
};

/// The islands of a run, with counts of their states, so that an event of one island takes no time
/// in proportion to the number of islands.
class IslandTable {
 public:
  /// The island of that number, made if it is new: numbers come without gaps.
  Island& add(IslandId id, const std::string& name, const std::string& address);
  Island& operator[](IslandId id) { return islands_[id - 1]; }
  const Island& operator[](IslandId id) const { return islands_[id - 1]; }
  /// Null when no island has this connection.
  Island* of_connection(ConnectionId connection);
  const Island* of_connection(ConnectionId connection) const;
  std::deque<Island>& all() { return islands_; }
  const std::deque<Island>& all() const { return islands_; }
  std::size_t size() const { return islands_.size(); }

  /// kNoConnection: it has none any more.
  void connect(Island& island, ConnectionId connection);
  /// An island that is not active is in no phase.
  void set_state(Island& island, IslandState state);
  void set_phase(Island& island, Phase phase);
  /// Whether it counts for the quorum while it is suspect, and is waited for until it is active.
  void set_suspect(Island& island, bool counts, bool is_awaited);

  int count(IslandState state) const { return states_[static_cast<std::size_t>(state)]; }
  /// Active islands in that phase.
  int count(Phase phase) const { return phases_[static_cast<std::size_t>(phase)]; }
  int num_counting_suspects() const { return num_counting_; }
  int num_awaited() const { return num_awaited_; }
  /// Connections of the islands that are told of outer steps: active ones, and connected suspects.
  std::vector<ConnectionId> listeners() const;

 private:
  void tally(const Island& island, int sign);

  std::deque<Island> islands_;  // by number
  std::unordered_map<ConnectionId, IslandId> connections_;
  std::array<int, kNumIslandStates> states_ = {};
  std::array<int, kNumPhases> phases_ = {};
  int num_counting_ = 0;
  int num_awaited_ = 0;
};

}  // namespace atl::island
