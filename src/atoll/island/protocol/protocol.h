#pragma once

// What islands and the coordinator of a run say to each other, as plain data. The state machines
// (coordinator.h, member.h) take and give these; messages.proto is their form on the wire, the
// ledger keeps LogRecords. docs/protocol.md draws it.
//
// A run is a sequence of *outer steps*, one under way at a time. Outer step k exchanges fragment
// k mod num_fragments of the model: with one fragment that is the whole model, every H inner steps
// (DiLoCo); with P of them, a P-th, every H / P inner steps (streaming DiLoCo).

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace atl::island {

/// Seconds on a clock that only goes forward. The machines have none: each event brings the time.
using Seconds = double;

/// An island of a run, from 1, given by the coordinator when its name first joins and never given
/// to another name. Sums are made in this order.
using IslandId = std::uint32_t;
inline constexpr IslandId kNobody = 0;

/// Of a fragment's outer state: its anchor and what the outer optimizer keeps. The sum of the
/// XXH3-128 of its chunks (outer/state_part.h).
struct StateHash {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  // clang-tidy takes what a defaulted comparison calls for a null pointer.
  auto operator<=>(const StateHash&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Global batches [begin, end) of the run's order: batch b is what data::Sampler gives as step b.
struct BatchRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  auto operator<=>(const BatchRange&) const = default;
};

/// Where a message stands in the run. A receiver drops a message with a lower fence, view, outer
/// step or attempt than it knows of, and one with a sequence number that it has seen.
struct Stamp {
  std::uint64_t fence = 0;      ///< of the coordinator's lease on the ledger: grows at each start
  std::uint64_t view = 0;       ///< of the membership
  std::int64_t outer_step = 0;  ///< the one under way: as many were committed before
  std::uint32_t attempt = 0;    ///< at reducing it
  IslandId sender = kNobody;    ///< kNobody: the coordinator
  std::uint64_t sequence = 0;   ///< grows with each message of a sender
  auto operator<=>(const Stamp&) const = default;
};

/// RunIdentity::version of this program; it changes with the meaning of messages.
inline constexpr const char* kProtocolVersion = "8";

/// What must be the same for islands to train one model; each a text that errors can show.
struct RunIdentity {
  std::string run;        ///< its name
  std::string version;    ///< of atoll's protocol
  std::string model;      ///< hash of the model's configuration
  std::string tokenizer;  ///< hash
  std::string data;       ///< hash of the corpus, or "private"
  std::string settings;   ///< all other settings that change results: settings_text()
  auto operator<=>(const RunIdentity&) const = default;
};

/// How islands communicate in a round: all that a policy may change while a run goes on
/// (policy/policy.h). Outer step k has one; the COMMIT of outer step k - 1 says it.
struct RoundSchedule {
  std::int64_t inner_steps = 1;  ///< between two outer steps, on the fastest island
  std::int64_t overlap = 0;      ///< inner steps from an outer step's begin to its end
  std::string codec = {};        ///< of pseudo-gradients; empty: as the island's settings say
  double outer_lr = 0;           ///< of the outer optimizer; 0: as the island's settings say
  double predicted_seconds = 0;  ///< from its REDUCE to its COMMIT; 0: nothing was predicted
  auto operator<=>(const RoundSchedule&) const = default;
};

/// By which rule the schedule of each round is chosen, and within which bounds.
struct PolicyPlan {
  std::string policy = "fixed";
  RoundSchedule base = {};           ///< of the run's settings: what `fixed` always says
  std::int64_t min_inner_steps = 1;  ///< bounds of RoundSchedule::inner_steps
  std::int64_t max_inner_steps = 1;
  bool may_overlap = false;       ///< RoundSchedule::overlap may be another than the base's
  bool may_change_codec = false;  ///< and so may the codec
  bool may_change_lr = false;     ///< and the outer learning rate
  double qsr_alpha = 0;           ///< 0: such that H is the base's at the greatest learning rate
  double round_bytes = 0;         ///< that an island may send for an outer step; 0: any number
  double day_bytes = 0;           ///< and in 86,400 seconds
  double parameters = 0;          ///< that an outer step exchanges, of the largest fragment
  std::int64_t fragments = 1;     ///< that take turns
  auto operator<=>(const PolicyPlan&) const = default;
};

/// The plan of a run. The first island to join sets it; later islands must have the same.
struct RunPlan {
  int num_fragments = 1;
  std::int64_t inner_steps = 1;    ///< between two outer steps, on the fastest island
  std::int64_t total_batches = 0;  ///< of all islands together
  int min_islands = 1;             ///< that must be there before it begins
  int quorum = 0;                  ///< islands that an outer step needs; 0: half of those active
  double grace_seconds = 5;        ///< that it waits for more
  bool is_private = false;         ///< each island has its own data: leases are only amounts
  /// Bytes of each fragment's outer state. They bound what the coordinator relays. Empty: nothing
  /// passes through the coordinator.
  std::vector<std::uint64_t> state_sizes = {};
  PolicyPlan policy = {};
  /// Outer steps are made as islands are ready: nobody is waited for, all contributors count alike,
  /// and a pseudo-gradient that missed one is in the next.
  bool is_async = false;
  /// Each island keeps a state of its own. In an outer step pairs of islands average their states
  /// (partners.h); at the end of the run all of them do, once.
  bool is_gossip = false;
  auto operator<=>(const RunPlan&) const = default;
};

// ---- from an island ----

/// The first message of every connection.
struct Join {
  std::string name;
  RunIdentity identity;
  RunPlan plan;
  /// HOST:PORT where other islands fetch from it, of each of its ranks that exchange a part, with
  /// commas between them; empty: it only calls out.
  std::string address;
  /// Outer steps that its state is the result of; -1: it has none. Then, of each fragment.
  std::int64_t outer_step = -1;
  std::vector<StateHash> hashes;
  /// What it was leased and has neither committed nor given back.
  std::vector<BatchRange> holds;
  /// The access token with which this process fetches and puts at the coordinator (Roster).
  std::string relay_token = {};
  /// The access token that other islands must show to fetch from this one; the coordinator sends it
  /// to them (View).
  std::string peer_token = {};
  /// Of the result of the next outer step, which lies beside its state; zero: there is none.
  StateHash prepared = {};
  bool operator==(const Join&) const = default;
};
/// It now has the state that Welcome or Resync told it to fetch.
struct Synced {
  std::int64_t outer_step = 0;
  std::vector<StateHash> hashes;
  /// Batches that it will still hand in; its other leases return.
  std::vector<BatchRange> holds;
  std::uint64_t answers = 0;  ///< sequence number of that Welcome or Resync
  bool operator==(const Synced&) const = default;
};
/// Sent every few hundred milliseconds by a thread of its own.
struct Heartbeat {
  std::int64_t inner_steps = 0;   ///< that it has taken, ever
  double batches_per_second = 0;  ///< lately; 0: not known yet
  Seconds sent = 0;               ///< when, on a clock of the island's own
  std::vector<IslandId> heard;    ///< islands that sent bytes since its last heartbeat
  bool operator==(const Heartbeat&) const = default;
};
/// What an island measured of one other in its newest exchange.
struct LinkMeasurement {
  IslandId island = kNobody;      ///< the other one
  double bytes_per_second = 0;    ///< that came from it, while everybody exchanged
  double round_trip_seconds = 0;  ///< from a request to the first bytes of its answer
  auto operator<=>(const LinkMeasurement&) const = default;
};
/// What an island measured since its last contribution; 0: nothing yet. Claims, which a policy
/// bounds and never trusts alone.
struct Measurements {
  double step_seconds = 0;            ///< of an inner step
  double learning_rate = 0;           ///< of the inner optimizer, at the last step
  double exchange_seconds = 0;        ///< of its newest exchange, from REDUCE to the result
  double codec_bytes_per_second = 0;  ///< f32 bytes that are encoded
  double mean_norm = 0;  ///< Euclidean, of the mean pseudo-gradient of the newest outer step
  std::vector<LinkMeasurement> links = {};
  bool operator==(const Measurements&) const = default;
};
/// Its pseudo-gradient of the stamp's outer step is frozen and can be fetched.
struct Ready {
  StateHash base_hash;               ///< of the fragment that the pseudo-gradient is against
  std::int64_t tokens = 0;           ///< trained on since its last one that was committed
  std::vector<BatchRange> consumed;  ///< the same as batches
  double norm = 0;                   ///< Euclidean, of the pseudo-gradient
  bool is_finite = true;
  double loss = 0;  ///< mean over those tokens
  /// The encoded pseudo-gradient and its chunks, for the relay (Reduce::is_star).
  std::uint64_t encoded_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::string codec = {};  ///< that it is encoded with; empty: as the island's settings say
  Measurements measured = {};
  bool operator==(const Ready&) const = default;
};
/// The island could not fetch from these islands.
struct ReduceFailed {
  std::vector<IslandId> unreachable;
  std::string why;
  bool operator==(const ReduceFailed&) const = default;
};
/// The island has made the outer step's result and keeps it beside its present state.
struct Prepared {
  StateHash hash;
  bool operator==(const Prepared&) const = default;
};
/// The island leaves the run; the batches that it holds return.
struct Leave {
  std::string why;
  bool operator==(const Leave&) const = default;
};

using FromIsland = std::variant<Join, Synced, Heartbeat, Ready, ReduceFailed, Prepared, Leave>;

// ---- from the coordinator ----

/// Where state, sums or pseudo-gradients can be fetched from.
struct Source {
  IslandId island = kNobody;
  std::string address;  ///< empty: through the coordinator
  auto operator<=>(const Source&) const = default;
};

/// The answer to Join.
struct Welcome {
  IslandId island = kNobody;
  std::int64_t outer_step = 0;    ///< that the run has committed
  std::vector<StateHash> hashes;  ///< of each fragment then; empty: nobody has said yet
  /// Get that state and say Synced: by swapping a prepared outer step in, or from these sources
  /// (none: others are waited for, and Resync will name them).
  bool must_sync = false;
  std::vector<Source> sources;
  /// Which of Join's batches are still this island's. Work on others must be dropped.
  std::vector<BatchRange> holds;
  bool contributed = false;     ///< to the newest outer step that was committed
  RoundSchedule schedule = {};  ///< of the outer step that is next then
  bool operator==(const Welcome&) const = default;
};
/// The island may not take part.
struct Refused {
  std::string why;
  bool is_final = true;  ///< false: may be tried again
  bool operator==(const Refused&) const = default;
};
/// What to train on next, until `inner_steps` more are done; then comes Ready. It comes with Reduce
/// of the outer step before, so that training can go on beside it. None (0) means that no batch is
/// left, and that what was trained on and not committed is to be handed in again.
struct Lease {
  std::vector<BatchRange> ranges;
  std::int64_t inner_steps = 0;
  /// Batches that were consumed, or leased to anybody, when this round began: how far the run is,
  /// the same for all islands.
  std::int64_t round_begin = 0;
  /// Batches that all leases of this round have so far: how far the run gets meanwhile.
  std::int64_t round_batches = 0;
  bool operator==(const Lease&) const = default;
};
struct Participant {
  IslandId island = kNobody;
  std::string address;
  double weight = 0;  ///< of its pseudo-gradient; those of all add up to 1
  std::int64_t tokens = 0;
  auto operator<=>(const Participant&) const = default;
};
/// Fetch these pseudo-gradients, sum them in this order, and make the outer step beside the state.
/// Islands that contribute nothing get it too. With gossip the participants are this island's
/// partners and it; none: its state stays as it is.
struct Reduce {
  int fragment = 0;
  std::vector<Participant> participants;  ///< by island, ascending
  bool is_star = false;         ///< all through the coordinator, because one of them only calls out
  RoundSchedule schedule = {};  ///< of this outer step
  /// Pseudo-gradients in all outer steps before: what delayed momentum counts by.
  std::int64_t arrivals = 0;
  bool operator==(const Reduce&) const = default;
};
/// Stop the attempt of the stamp; pseudo-gradients stay as they are.
struct AbandonReduce {
  std::string why;
  bool operator==(const AbandonReduce&) const = default;
};
/// All participants have the same result: it is the state now.
struct Commit {
  int fragment = 0;
  StateHash hash;
  std::vector<Participant> participants;
  RoundSchedule next = {};  ///< of the outer step after it
  bool operator==(const Commit&) const = default;
};
/// Your pseudo-gradient is not in the stamp's outer step.
struct Dropped {
  std::string why;
  bool operator==(const Dropped&) const = default;
};
/// Your state is not the run's: fetch it again, from these, and say Synced.
struct Resync {
  std::int64_t outer_step = 0;
  std::vector<StateHash> hashes;
  std::vector<Source> sources;
  bool drops_work = true;  ///< false: what was trained on and not committed may be rebased on it
  std::string why;
  RoundSchedule schedule = {};  ///< of the outer step that is next then
  bool contributed = false;     ///< to the newest outer step that was committed
  bool operator==(const Resync&) const = default;
};
/// Put your state to the coordinator, as soon as it is this one: an island needs it that can reach
/// no island that has it.
struct PutState {
  std::vector<StateHash> hashes;  ///< of each fragment; none (zero): it is there already
  bool operator==(const PutState&) const = default;
};
/// The present members of the run.
struct View {
  struct MemberInfo {
    IslandId island = kNobody;
    std::string name;
    std::string address;
    std::string state;  ///< "joining", "syncing", "active", "suspect", "out"
    std::string peer_token =
        {};  ///< as its newest Join told; "": none since the coordinator started
    auto operator<=>(const MemberInfo&) const = default;
  };
  std::vector<MemberInfo> members;
  bool operator==(const View&) const = default;
};
/// The run is over, or this island is not wanted any more.
struct Finish {
  std::string why;
  bool is_done = true;  ///< false: it was turned out, and this is an error
  bool operator==(const Finish&) const = default;
};

using ToIsland = std::variant<Welcome, Refused, Lease, Reduce, AbandonReduce, Commit, Dropped,
                              Resync, View, Finish, PutState>;

/// A message with what says which one it is.
template <typename Body>
struct Stamped {
  Stamp stamp;
  Body body;
  bool operator==(const Stamped&) const = default;
};
using MessageFromIsland = Stamped<FromIsland>;
using MessageToIsland = Stamped<ToIsland>;

// ---- the log, which is the truth ----

/// A coordinator took the ledger.
struct LogStarted {
  std::uint64_t fence = 0;
  bool operator==(const LogStarted&) const = default;
};
/// An island joined: for the first time, from another address, or again.
struct LogIsland {
  IslandId island = kNobody;
  std::string name;
  std::string address;
  bool operator==(const LogIsland&) const = default;
};
/// These batches are this island's to train on.
struct LogLease {
  IslandId island = kNobody;
  std::vector<BatchRange> ranges;
  bool operator==(const LogLease&) const = default;
};
/// An island's batches return, untrained. Without batches: the island has left the run.
struct LogReturn {
  IslandId island = kNobody;
  std::vector<BatchRange> ranges;
  bool operator==(const LogReturn&) const = default;
};
/// One island's part in an attempt.
struct LogContribution {
  Participant participant;
  std::vector<BatchRange> consumed;
  double loss = 0;
  double norm = 0;
  Measurements measured = {};
  /// With gossip: which of the outer step's exchanges it is in, from 1. 0: all are in one.
  int exchange = 0;
  bool operator==(const LogContribution&) const = default;
};
/// An attempt at an outer step begins.
struct LogReduce {
  std::int64_t outer_step = 0;
  std::uint32_t attempt = 0;
  int fragment = 0;
  std::vector<LogContribution> contributions;
  bool operator==(const LogReduce&) const = default;
};
/// The newest LogReduce of that outer step is committed, and its batches are consumed.
struct LogCommit {
  std::int64_t outer_step = 0;
  std::uint32_t attempt = 0;
  StateHash hash;
  double exchange_seconds = 0;  ///< since its LogReduce, by the coordinator's clock
  double round_seconds = 0;     ///< since the commit before, or since the coordinator began
  /// What the policy says of the outer step after it; none where the policy is "fixed".
  std::optional<RoundSchedule> next = {};
  std::string why = {};  ///< that differs from the one before; empty: it does not
  /// With gossip: of each contribution, the state that its exchange ended with; zero: the exchange
  /// came to nothing, and the contribution is not in. Empty: all contributions are in one exchange.
  std::vector<StateHash> results = {};
  bool operator==(const LogCommit&) const = default;
};
/// Commits from this outer step on are void: no island has their state any more.
struct LogVoid {
  std::int64_t first_outer_step = 0;
  std::string why;
  bool operator==(const LogVoid&) const = default;
};
/// All of the run is committed.
struct LogFinished {
  bool operator==(const LogFinished&) const = default;
};

/// By which policy the run goes on. Not there: by "fixed".
struct LogPolicy {
  PolicyPlan plan;
  bool operator==(const LogPolicy&) const = default;
};

using LogBody = std::variant<LogStarted, LogIsland, LogLease, LogReturn, LogReduce, LogCommit,
                             LogVoid, LogFinished, LogPolicy>;
/// What was appended, and when.
struct LogRecord {
  double unix_seconds = 0;  ///< for people; nothing is decided by it
  LogBody body;
  bool operator==(const LogRecord&) const = default;
};

}  // namespace atl::island
