#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// A connection to the scheduler, never used twice.
using SessionId = std::uint64_t;

/// How long the scheduler waits for what cannot go on without.
struct Patience {
  double lead_seconds = 60;    ///< for the lead, when a checkpoint is due
  double server_seconds = 60;  ///< for a server that has the only copy of a slice
  double return_seconds = 5;   ///< for those who knew the scheduler that was here before
};

/// Decides who takes part: which servers have which slices, and which workers have which lanes. A
/// state machine without clock or socket. Pulls and pushes do not pass through it.
///
/// A step of the run is cut into lanes, and a lane is leased to one worker at a time, which makes
/// its pushes in the order of steps. When a worker is gone its lanes go to others, from the step
/// that it had not reported; a push that was made twice then counts once (SliceState). So each
/// (step, lane), and each sample, counts exactly once.
class Scheduler {
 public:
  /// `run`: see Term; at random.
  explicit Scheduler(const Patience& patience = {}, std::uint64_t run = 1)
      : patience_(patience), term_{.run = run, .epoch = 1} {}

  /// What must be on disk before what take_sends() gives is sent, whenever take_changed() says so.
  /// Then a scheduler that is killed at any moment, and whose state is given to restore(), has
  /// forgotten nothing that anybody was told.
  SchedulerState state() const;
  bool take_changed() { return std::exchange(is_changed_, false); }
  /// Lanes have come further since the last call, and nothing else has changed. Who has a lane
  /// knows how far it is, so this may be written later.
  bool take_moved() { return std::exchange(is_moved_, false); }
  /// Goes on from what was written, before anything else is called. Servers and workers that were
  /// there count as there until they come, or have not come for Patience::return_seconds.
  void restore(const SchedulerState& state);

  struct Send {
    SessionId to = 0;
    Message message;
    bool closes = false;  ///< the session ends after it
  };

  void closed(SessionId session);
  /// Throws Error(kDamaged) for what a session of this kind does not send.
  void received(SessionId session, const Message& message);
  /// `now`: seconds of any clock that does not go back.
  void ticked(double now);

  /// What is to be sent, in order; what was told before is not told again.
  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }
  /// Lines for the log.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  /// Whether the run has ended and all workers know.
  bool is_over() const { return is_over_ && workers_.empty(); }
  /// Why it has ended before its last step, without that anybody asked for it; "" it has not.
  /// Whoever is started again ends for the same reason.
  std::string why_failed() const { return is_over_ && !stops_ ? end_why_ : ""; }
  const Term& term() const { return term_; }
  const View& view() const { return view_; }
  const std::optional<RunSpec>& spec() const { return spec_; }
  std::size_t num_workers() const { return workers_.size(); }

 private:
  struct Server {
    ServerId id = kNobody;
    std::string address;
    std::vector<std::uint32_t> slices;  // that it had when it came
  };
  struct Worker {
    std::int64_t number = 0;
    std::string identity;
  };
  struct Lane {
    SessionId owner = 0;  // 0: nobody has it
    std::int64_t next = 0;
    bool is_releasing = false;
  };

  void take(SessionId session, const WorkerHello& hello);
  void take(SessionId session, const ServerHello& hello);
  void take(SessionId session, const Offer& offer);
  void take(SessionId session, const Loaded& loaded);
  void take(SessionId session, const Done& done);
  void take(SessionId session, const Released& released);
  void take(SessionId session, const Saved& saved);
  void take(SessionId session, const StopRun& stop);
  void take(SessionId session, const Ready& ready);
  template <typename T>
  void take(SessionId session, const T& other);
  Lane& lane_of(const LaneAt& at);

  // Those who knew the scheduler before this one, and have not come yet, have sessions that nobody
  // is at.
  static constexpr SessionId kAbsent = SessionId{1} << 63;
  static bool is_absent(SessionId session) { return (session & kAbsent) != 0; }
  bool comes_back(SessionId session, const ServerHello& hello);
  bool comes_back(SessionId session, const WorkerHello& hello);
  void give_up_absent();
  void number_view();

  void send(SessionId to, Message message) {
    if (!is_absent(to)) sends_.push_back({to, std::move(message)});
  }
  void refuse(SessionId session, const std::string& why);
  void refuse_other_run(SessionId session, std::int64_t worker);
  void begin_if_all_are_here();
  void server_is_gone(SessionId session, const Server& server);
  void give_back(Server& server);
  void join_servers();
  void publish_view();
  void say_if_complete();
  void share_lanes();
  void assign(SessionId worker);
  void assign_all();
  std::int64_t next_fence(std::int64_t step) const;
  bool has_checkpoint() const;
  void meet_at_fence();
  void go_on_from_fence();
  void end(const std::string& why);
  std::size_t lanes_of(SessionId worker) const;
  SessionId lead() const;
  std::vector<ServerId> server_ids() const;
  std::int64_t lost_slices() const;

  Patience patience_;
  Term term_;
  bool is_changed_ = true;
  bool is_moved_ = false;
  std::optional<double> absent_since_;
  std::vector<Send> sends_;
  std::vector<std::string> notices_;
  std::optional<RunSpec> spec_;
  std::map<SessionId, Server> servers_;
  std::map<SessionId, Worker> workers_;
  ServerId last_server_ = kNobody;
  View view_;
  std::map<std::uint32_t, ServerId> leaving_;
  std::vector<Lane> lanes_;
  std::int64_t until_ = 0;
  bool is_placed_ = false;
  std::uint64_t placed_view_ = 0;  // the first with the present place of the slices
  bool is_loaded_ = false;
  bool is_begun_ = false;  // lanes are given out
  bool is_saving_ = false;
  bool has_saved_ = false;
  bool stops_ = false;
  bool is_over_ = false;
  std::string end_why_;
  double now_ = 0;
  std::optional<double> waits_since_;  // for the lead, or for a server
};

}  // namespace atl::param_server
