#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "atoll/island/coordinator/failure_detector.h"
#include "atoll/island/coordinator/island_table.h"
#include "atoll/island/coordinator/state.h"
#include "atoll/island/protocol/protocol.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

/// How a run is coordinated.
struct CoordinatorOptions {
  RunIdentity identity;
  RunPlan plan;
  FailureDetectorLimits failure_detector;
  Seconds join_within = 10;  ///< a connection that has not said Join by then is closed
  /// A suspect counts for the quorum until then; after a restart islands are waited for so long.
  Seconds quorum_after = 3;
  Seconds out_after = 30;        ///< a suspect keeps its leases until then
  Seconds reduce_timeout = 900;  ///< of an attempt, while all participants are alive
  /// At the end of the run islands that were seen so lately are waited for, across restarts.
  Seconds stays_for = 60;
  Seconds void_after = 30;         ///< without the newest state, until an older one wins
  double max_norm_ratio = 10;      ///< to the median of three contributors or more
  double late_weight = 1;          ///< factor for each outer step that a pseudo-gradient missed
  bool proportional_steps = true;  ///< slower islands take fewer inner steps between outer steps
  bool weighs_tokens = true;       ///< false: contributors count alike
  int max_strikes = 3;             ///< wrong states in a row, until an island is turned out
  /// Where the run's state keeps changing faster than an island can fetch it, rounds become this
  /// many times longer at most until it has it. 1: never.
  int max_stretch = 16;
};

// What happens to a coordinator.
/// A connection was made. Its messages come in order until it is closed.
struct ConnectionOpened {
  ConnectionId connection = kNoConnection;
};
/// A connection ended by itself.
struct ConnectionClosed {
  ConnectionId connection = kNoConnection;
  std::string why;
};
/// A message came over a connection.
struct ConnectionReceived {
  ConnectionId connection = kNoConnection;
  MessageFromIsland message;
};
/// Bytes of these islands came, from them or through others: they live.
struct BytesCame {
  std::vector<IslandId> from;
};
struct ClockTicked {};  ///< due every quarter of a second

/// One of these, and when.
struct CoordinatorEvent {
  Seconds now = 0;
  std::variant<ConnectionOpened, ConnectionClosed, ConnectionReceived, BytesCame, ClockTicked> what;
};

// What a coordinator wants done, in this order.
/// Send one message to each of these connections.
struct SendToIslands {
  std::vector<ConnectionId> to;
  MessageToIsland message;
};
/// Append a record durably, before any action after it is done.
struct AppendToLog {
  LogBody body;
};
/// Close a connection after its queued messages are sent. No ConnectionClosed event follows.
struct CloseConnection {
  ConnectionId connection = kNoConnection;
  std::string why;
};
/// Log a line for the person who runs the coordinator.
struct Notice {
  std::string text;
  bool is_warning = false;
  bool is_lost_island = false;  ///< an island is gone or silent
};

/// One of these.
using CoordinatorAction = std::variant<SendToIslands, AppendToLog, CloseConnection, Notice>;

/// Coordinates a run: which islands take part, which batches they train, which outer steps count
/// (docs/protocol.md). Pure: it has no clock, socket, file or randomness. Every decision that must
/// outlive it is an AppendToLog before anyone hears of it, so that a new one made from the log goes
/// on where it ended. For one thread.
class Coordinator {
 public:
  /// `fence`: of this hold on the ledger, higher than all before; `log`: all that was appended
  /// until now. Throws Error(kDamaged) when the log contradicts itself or the plan.
  Coordinator(const CoordinatorOptions& options, std::uint64_t fence,
              std::span<const LogRecord> log);

  /// What to do about an event. Times must not go backwards.
  std::vector<CoordinatorAction> handle(const CoordinatorEvent& event);

  /// What the log amounts to.
  const RunState& state() const { return state_; }
  const IslandTable& members() const { return members_; }
  const RunPlan& plan() const { return options_.plan; }
  /// Whether all batches are committed.
  bool is_finished() const {
    return state_.leases().is_done() && (!options_.plan.is_gossip || state_.is_averaged());
  }
  /// Whether the run is finished, and no island is left that may still have to be told.
  bool is_over() const;
  /// Why the run cannot go on until a person has looked, or "".
  const std::string& halted() const { return halted_; }

 private:
  // With gossip: one of the exchanges of an attempt.
  struct PartnerExchange {
    std::vector<Participant> participants;
    std::optional<StateHash> result;  // all of them have it
    bool is_broken = false;
  };
  // What state an island is to have, and who has that.
  struct WantedState {
    std::vector<StateHash> hashes;  // empty: not known
    std::vector<Source> sources;
    bool is_there = false;     // it has that already
    bool contributed = false;  // to the outer step that leads to it from the one before
  };
  // An attempt at the outer step.
  struct Attempt {
    std::vector<Participant> participants;
    int num_prepared = 0;
    Seconds since = 0;
    bool is_star = false;
    LogReduce record = {};
    std::vector<PartnerExchange> exchanges = {};  // with gossip, but for the last mean
  };

  // coordinator.cpp: events.
  void start();
  void on(const ConnectionOpened& event);
  void on(const ConnectionClosed& event);
  void on(const ConnectionReceived& event);
  void on(const BytesCame& event);
  void note_heard(const std::vector<IslandId>& islands, Seconds when);
  void on(const ClockTicked& event);
  void receive(Island& island, const Stamp& stamp, const Synced& synced);
  void receive(Island& island, const Stamp& stamp, const Heartbeat& heartbeat);
  void receive(Island& island, const Stamp& stamp, const Ready& ready);
  void receive(Island& island, const Stamp& stamp, const ReduceFailed& failed);
  void receive(Island& island, const Stamp& stamp, const Prepared& prepared);
  void receive(Island& island, const Stamp& stamp, const Leave& leave);
  void receive(Island& island, const Stamp& stamp, const Join& join);
  std::string size_fault(const Ready& ready, std::size_t fragment) const;

  // islands.cpp: membership.
  void join(ConnectionId connection, const Join& join);
  std::string objection(const Join& join) const;
  void refuse(ConnectionId connection, const std::string& why, bool is_final);
  void welcome(Island& island, const Join& join);
  void activate(Island& island);
  void resync(Island& island, const std::string& why, bool drops_work);
  void strike(Island& island, const std::string& why);
  void suspect(Island& island, const std::string& why);
  void lose_connection(Island& island, const std::string& why);
  void turn_out(Island& island, const std::string& why);
  void watch(Island& island);
  void find_newest_state();
  bool still_has_state(Island& island);
  void tell_sources();
  std::vector<Source> sources(IslandId except, const StateHash& hash = {});
  WantedState wanted_state(Island& island, const StateHash& prepared = {});
  void offer_newest(const Island& best);
  void ask_for_state(Island& island, const std::vector<Source>& sources);
  void lose_putter(IslandId putter);
  void announce_view();
  template <typename Others>
  void send_names(const Island& island, const Others& others);

  // leases.cpp: leases of batches.
  void begin_run();
  void grant(const std::vector<IslandId>& islands, Phase phase);
  std::vector<std::int64_t> counts_of(const std::vector<IslandId>& islands) const;
  void grant_idle(Phase phase);
  void keep_only(Island& island, std::span<const BatchRange> holds);
  bool has_open_lease(const Island& island) const;
  void find_fastest();
  void begin_round(std::int64_t outer_step, const RoundSchedule& schedule);
  int stretch();

  // outer_step.cpp: outer steps.
  void advance();
  int quorum() const;
  bool waits_for_budget();
  void begin_attempt();
  std::vector<IslandId> admit();
  std::vector<LogContribution> contributions(const std::vector<IslandId>& admitted) const;
  void judge();
  void commit(const StateHash& hash);
  void drop_late(Island& island, const std::string& why);
  void abandon(const std::string& why);
  void exclude(Island& island);
  void leave_attempt(Island& island, const std::string& why);
  void finish();
  void part();
  bool may_come(const Island& island) const;
  bool is_somebody_away() const;
  bool has_holder() const;
  bool is_saving(const Island& island) const;
  void release();
  std::string without_whom() const;
  void give_up(Island& island, const std::string& why);
  void lose_at_end(Island& island, const std::string& why);
  void halt(const std::string& why);
  bool takes_part(IslandId island) const;

  // gossip.cpp: outer steps of pairs, each island with a state of its own.
  bool is_averaging() const;
  bool is_own_state(IslandId island, std::int64_t outer_step, const StateHash& hash) const;
  void begin_exchanges(LogReduce& record);
  PartnerExchange* exchange_of(IslandId island);
  const PartnerExchange* exchange_of(IslandId island) const;
  void prepared_exchange(Island& island);
  void disagree(const PartnerExchange& exchange);
  void break_exchange(PartnerExchange& exchange, const std::string& why);
  void undo_exchange(IslandId island, const RangeSet& back);
  bool settle_exchanges();
  void commit_exchanges();
  std::string fault_of_synced(const Island& island, const Synced& synced) const;

  Reduce reduce_message(const Island& island) const;
  Stamp stamp();
  void send(const Island& island, ToIsland body);
  void broadcast(ToIsland body);
  void append(LogBody body);
  void notice(std::string text, bool is_warning = true);
  void tell_suspected(const Island& island, const std::string& why);

  CoordinatorOptions options_;
  std::uint64_t fence_;
  RunState state_;
  IslandTable members_;
  Seconds now_ = 0;
  bool is_started_ = false;
  std::map<IslandId, Seconds> gone_;  // until it is started: as the log has it
  bool has_begun_ = false;
  int num_missing_ = 0;    // islands that the beginning waited for when it was last said
  Seconds next_view_ = 0;  // before the beginning, when islands are told again who is there
  std::string halted_;
  std::map<ConnectionId, Seconds> unjoined_;  // connections without a Join, since when
  std::vector<CoordinatorAction> actions_;
  std::uint64_t view_ = 1;
  bool view_changed_ = false;
  std::uint64_t sequence_ = 0;
  std::uint32_t attempt_ = 0;  // at the outer step under way; 0: none yet
  std::optional<Attempt> reducing_;
  Seconds step_began_ = 0;
  std::optional<Seconds> grace_from_;
  std::optional<Seconds> stuck_from_;  // everybody is excluded
  std::optional<Seconds> lost_from_;   // nobody has the newest state
  IslandId asked_ = kNobody;           // whether it still has the newest state that is left
  std::uint64_t asked_request_ = 0;    // by which message
  bool has_confirmed_ = false;         // it has
  std::optional<Seconds> parting_;     // since when the run is finished, or an island went then
  int num_disagreements_ = 0;          // on the result of the outer step under way
  bool mesh_is_broken_ = false;        // some island cannot reach another, until the view changes
  double fastest_ = 0;                 // batches per second
  // The round that newest leases are for:
  std::int64_t round_ = -1;       // its outer step
  Seconds round_from_ = 0;        // when it began
  std::int64_t round_begin_ = 0;  // batches that were consumed or leased then
  int longer_ = 1;                // its inner steps are so many times those of the schedule
  std::int64_t round_steps_ = 1;  // those of the schedule
  bool is_told_of_budget_ = false;
  std::size_t next_source_ = 0;
};

}  // namespace atl::island
