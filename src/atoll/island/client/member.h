#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "atoll/island/protocol/protocol.h"
#include "atoll/island/protocol/range_set.h"

namespace atl::island {

/// Who an island is.
struct MemberOptions {
  std::string name;
  RunIdentity identity;
  RunPlan plan;
  std::string address;           ///< HOST:PORT for others; empty: it only calls out
  std::string relay_token = {};  ///< as in Join
  std::string peer_token = {};
  Seconds heartbeat_every = 0.5;
  Seconds give_up_after = 600;  ///< without a coordinator
  Seconds stays_for = 60;       ///< the same after the run's end, with the final model
  /// Its checkpoint has the final model: it was written after the end of the run.
  bool has_final_state = false;
  /// Whether the trainer can go on with what it has on top of state that was fetched.
  bool can_rebase = true;
  bool remembers_view = true;  ///< false where nobody asks for view()
};

/// What it begins with: a new model, or a checkpoint.
struct MemberStart {
  std::int64_t outer_step = -1;   ///< of its state; -1: it has none
  std::vector<StateHash> hashes;  ///< of each fragment of that
  std::vector<BatchRange> holds;  ///< leased to it and not committed, trained on or not
  bool in_round = false;          ///< the trainer has some of these to train on, and will hand in
};

// What happens to a member.
struct CoordinatorReached {};  ///< a new connection to it
struct CoordinatorLost {       ///< that connection ended, or could not be made
  std::string why;
};
struct CoordinatorSaid {
  MessageToIsland message;
};
/// The trainer has done its round: its pseudo-gradient is frozen and is being offered.
struct RoundDone {
  std::uint64_t num_adopted = 0;  ///< Adopt actions that dropped work, seen by the trainer
  std::int64_t outer_step = 0;    ///< that it is for: those that the trainer has seen committed
  Ready ready;
};
struct ReduceDone {  ///< the result lies beside the state
  Stamp stamp;       ///< of the StartReduce
  StateHash hash;
};
struct ReduceBroke {
  Stamp stamp;
  std::vector<IslandId> unreachable;
  std::string why;
};
struct StateFetched {  ///< what was fetched is the state now
  std::int64_t outer_step = 0;
  std::vector<StateHash> hashes;
};
struct FetchFailed {
  std::string why;
};
struct FetchStopped {};  ///< answers StopFetch: no answer to an earlier FetchState comes after it
struct Progress {        ///< of the trainer, for heartbeats
  std::int64_t inner_steps = 0;
  double batches_per_second = 0;
};
struct LeaveWanted {
  std::string why;
};
/// Due every tenth of a second or so.
struct MemberTicked {                ///< due every tenth of a second or so
  std::vector<IslandId> heard = {};  ///< whose bytes have come since the last one
};

/// One of these, and when.
struct MemberEvent {
  Seconds now = 0;
  std::variant<CoordinatorReached, CoordinatorLost, CoordinatorSaid, RoundDone, ReduceDone,
               ReduceBroke, StateFetched, FetchFailed, FetchStopped, Progress, LeaveWanted,
               MemberTicked>
      what;
};

// What a member wants done, in this order.
/// For the present connection.
struct SendToCoordinator {
  MessageFromIsland message;
};
/// Anew, in so many seconds: answered by CoordinatorReached or CoordinatorLost. The old connection,
/// if there still is one, is to be closed, and its end is not to be told.
struct Connect {
  Seconds after = 0;
};
struct StartReduce {  ///< answered by ReduceDone or ReduceBroke of the same stamp
  Stamp stamp;
  Reduce reduce;
};
struct StopReduce {  ///< what is under way is in vain; its answer, if it comes, is not heard
  Stamp stamp;
};
struct Swap {  ///< what lies beside the state is the state now
  std::int64_t outer_step = 0;
  int fragment = 0;
  StateHash hash;
  bool was_mine = false;  ///< the pseudo-gradient handed in is in it; false: rebase on it
  std::vector<Participant> participants;  ///< empty: known from before the connection was lost
};
struct FetchState {  ///< answered by StateFetched or FetchFailed, unless it is stopped
  std::int64_t outer_step = 0;
  std::vector<StateHash> hashes;  ///< only what differs from what it has must be fetched
  std::vector<Source> sources;
};
/// What is being fetched is not wanted any more. Answered by FetchStopped, and before that by
/// StateFetched or FetchFailed if the fetch had ended.
struct StopFetch {};
struct UploadState {  ///< put what of the state has these hashes to the coordinator
  std::vector<StateHash> hashes;
};
struct Adopt {  ///< the trainer is to start from the state
  std::int64_t outer_step = 0;
  bool drops_work = true;  ///< and forget all that was not committed; false: rebase it
};
struct StartRound {  ///< after what it does now; 0 steps: hand in what there is
  Lease lease;
  /// That RoundDone, counted from 1, will not be committed: there is no use waiting. 0: none.
  std::uint64_t drops_hand_in = 0;
};
/// From this outer step on islands communicate like this. Comes before the Swap or Adopt that leads
/// to it.
struct UseSchedule {
  std::int64_t outer_step = 0;
  RoundSchedule schedule;
};
/// It is over for this island. At the end of the run (is_done) the member stays connected, so that
/// other islands can fetch the final model, until all islands have saved it; then comes Part.
struct Halt {
  std::string why;
  bool is_done = false;     ///< the run is complete, or it has left: no error
  bool is_mistake = false;  ///< of whoever started it, or the coordinator
};
/// No island needs this one any more. Comes right after every other Halt.
struct Part {
  std::string why;  ///< worth telling a person; or empty
};
struct Warn {
  std::string text;
};

/// One of these.
using MemberAction =
    std::variant<SendToCoordinator, Connect, StartReduce, StopReduce, Swap, FetchState, StopFetch,
                 UploadState, Adopt, StartRound, UseSchedule, Halt, Part, Warn>;

/// An island's side of the protocol (docs/protocol.md): keeps it in step with the run whatever is
/// lost, and goes on training while the coordinator is away. Pure, as Coordinator is. For one
/// thread.
class Member {
 public:
  Member(const MemberOptions& options, const MemberStart& start);

  /// What to do about an event. Times must not go backwards.
  std::vector<MemberAction> handle(const MemberEvent& event);

  IslandId id() const { return id_; }
  std::int64_t outer_step() const { return outer_step_; }
  const std::vector<StateHash>& hashes() const { return hashes_; }
  /// Those of the next outer step with the result that lies beside the state; empty: there is none.
  std::vector<StateHash> next_hashes() const;
  /// Leased to it and not committed.
  std::vector<BatchRange> holds() const { return holds_.ranges(); }
  /// The newest message of the coordinator that was not dropped.
  const Stamp& newest() const { return newest_; }
  bool has_halted() const { return has_halted_; }
  /// The members as last told.
  const View& view() const { return view_; }

 private:
  // A result beside the state, or one that is being made.
  struct Shadow {
    Stamp stamp;
    int fragment = 0;
    std::optional<StateHash> hash;  // none: under way
  };
  struct HandedIn {
    std::int64_t outer_step = 0;
    Ready ready;
  };
  struct Target {
    std::int64_t outer_step = 0;
    std::vector<StateHash> hashes;
    std::vector<Source> sources;
    RoundSchedule schedule;
  };

  void on(const CoordinatorReached& event);
  void on(const CoordinatorLost& event);
  void on(const CoordinatorSaid& event);
  void on(const RoundDone& event);
  void on(const ReduceDone& event);
  void on(const ReduceBroke& event);
  void on(const StateFetched& event);
  void on(const FetchFailed& event);
  void on(const FetchStopped& event);
  void on(const Progress& event);
  void on(const LeaveWanted& event);
  void on(const MemberTicked& event);
  void hear_of_older_ledger(const MessageToIsland& message);

  void receive(const Stamp& stamp, const Welcome& welcome);
  void receive(const Stamp& stamp, const Refused& refused);
  void receive(const Stamp& stamp, const Lease& lease);
  void receive(const Stamp& stamp, const Reduce& reduce);
  void receive(const Stamp& stamp, const AbandonReduce& abandon);
  void receive(const Stamp& stamp, const PutState& put);
  void receive(const Stamp& stamp, const Commit& commit);
  void receive(const Stamp& stamp, const Dropped& dropped);
  void receive(const Stamp& stamp, const Resync& resync);
  void receive(const Stamp& stamp, const View& view);
  void receive(const Stamp& stamp, const Finish& finish);

  // After the end of the run (member_end.cpp).
  void conclude(const Finish& finish);
  void stay(const CoordinatorReached& event);
  void stay(const CoordinatorLost& event);
  void stay(const CoordinatorSaid& event);
  void stay(const LeaveWanted& event);
  void stay(const MemberTicked& event);
  template <typename Event>
  void stay(const Event&) {}  // of training or an exchange: neither counts any more
  void stay_in_step(const Stamp& stamp, Target target);
  void say_saved();
  void part(const std::string& why);

  StateHash prepared() const;
  void put_state();
  void join();
  bool is_at(const Target& target) const;
  void reach(Target target);
  void stop_fetch();
  bool may_change() const { return is_fetch_under_way_ || num_stops_ > 0; }
  void say_synced();
  bool swap_to(const Target& target);
  void swap(bool was_mine, std::vector<Participant> participants);
  void adopt();
  void use(std::int64_t outer_step, const RoundSchedule& schedule);
  void settle_commit();
  void stop_reduce();
  void resume();
  void ask(const std::string& why);
  void send(FromIsland body, std::int64_t outer_step);
  void send(FromIsland body) { send(std::move(body), outer_step_); }
  bool note(const Stamp& stamp);
  void connect_again();
  void send_heartbeat(const MemberTicked& event);
  void halt(const std::string& why, bool is_done, bool is_mistake = false);
  int fragment_of(std::int64_t outer_step) const;

  MemberOptions options_;
  Seconds now_ = 0;
  std::vector<MemberAction> actions_;
  IslandId id_ = kNobody;
  View view_;

  // The connection.
  bool is_connected_ = false;
  bool is_welcome_ = false;
  int num_failures_ = 0;
  std::optional<Seconds> alone_since_;
  std::optional<Seconds> next_heartbeat_;
  std::uint64_t sequence_ = 0;
  std::uint64_t heard_ = 0;  // sequence number of the coordinator, of this fence
  Stamp newest_;

  // The state.
  std::int64_t outer_step_;
  std::vector<StateHash> hashes_;
  std::optional<Shadow> shadow_;
  std::optional<Stamped<Commit>> commit_;  // heard before its result was there
  std::optional<Target> target_;           // to be reached by fetching, or by waiting for sources
  bool is_fetching_ = false;
  bool is_fetch_under_way_ = false;  // wanted or not, and not stopped
  int num_stops_ = 0;                // of fetches, not answered: their state may still come
  bool joins_when_stopped_ = false;
  std::int64_t fetches_step_ = -1;  // of the newest fetch, also when it is not wanted any more
  RoundSchedule fetches_schedule_;
  std::set<IslandId> bytes_from_;  // whose bytes have come since the last heartbeat
  bool is_asking_ = false;         // for what was committed and it has no result of
  bool will_be_answered_ = false;  // when it asked, the coordinator was ahead of it
  std::vector<StateHash> to_put_;  // as the coordinator wants, once this is the state; or empty
  std::optional<Seconds> fetch_again_;
  int num_fetches_ = 0;             // that failed, in a row
  std::uint64_t sync_request_ = 0;  // the newest of the coordinator's
  bool must_drop_ = false;          // what was trained does not count, once the target is reached

  // The newest schedule that was told, and from which outer step on; none is told before a change.
  RoundSchedule schedule_;
  std::int64_t schedule_from_ = 0;

  // The work.
  RangeSet holds_;
  bool in_round_;
  std::optional<HandedIn> handed_in_;  // until it is committed, or a lease follows
  std::uint64_t num_hand_ins_ = 0;     // of the trainer, ever
  bool was_dropped_ = false;           // the last of them
  std::uint64_t num_adopted_ = 0;
  Progress progress_;
  std::optional<Finish> finish_;  // heard before the last result was there
  bool is_leaving_ = false;
  std::string leave_why_;
  Seconds leave_by_ = 0;
  bool has_halted_ = false;

  // After the end of the run, while it stays for other islands.
  bool has_ended_ = false;
  bool is_told_ = false;    // of the end, on this connection
  bool has_saved_ = false;  // the trainer, the final model
};

}  // namespace atl::island
