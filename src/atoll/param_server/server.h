#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/param_server/messages.h"
#include "atoll/param_server/scheduler.h"
#include "atoll/param_server/slice_state.h"

namespace atl::param_server {

/// Where a server's message goes.
struct ServerTarget {
  enum class Kind {
    kScheduler,
    kSession,  ///< that a worker or another server has opened to this one
    kServer,   ///< another server, by the address that the view has of it
  } kind = Kind::kScheduler;
  std::uint64_t id = 0;
};

/// A parameter server: slices, and what it says to workers, to other servers and to the scheduler.
/// A state machine without clock or socket; its only input are the calls below, in their order.
///
/// The head of a slice orders the events that change it and passes each on to the others of the
/// chain, which take the same events in the same order. What the head answers is held back until
/// all of them have taken all events before the answer, so that nothing that anybody was told is
/// lost with a server. The scheduler alone makes views; one that was head and does not know a newer
/// view yet gets no more acknowledgements from those that do.
class Server {
 public:
  /// `stream` must outlive this.
  Server(Stream& stream, std::string address);

  struct Send {
    ServerTarget to;
    Message message;
  };

  /// What to say first to the scheduler, on each connection.
  ServerHello hello() const;
  /// Throw Error(kDamaged) for what the other side does not send.
  void received_from_scheduler(const Message& message);
  void received(SessionId session, const Message& message);
  /// From another server, on the link that this one has opened to it.
  void received_from_server(ServerId server, const Message& message);
  void closed(SessionId session);
  /// The link to another server is there, for the first time or again.
  void connected(ServerId server);

  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

  /// This server writes what it has to a disk. Of slices that it is given, by the lead or by
  /// another server, nothing is acknowledged before written(): whoever gave one may then be lost.
  void keep_on_disk() { keeps_on_disk_ = true; }
  /// Whether somebody waits for a slice to be on the disk.
  bool waits_for_disk() const;
  /// Slices that have changed since the last call, for the disk.
  std::vector<std::pair<std::uint32_t, std::string>> take_changed();
  /// What take_changed() gave is on the disk.
  void written();
  /// What was on the disk, of the run `spec`; before the first connection.
  void restore(const RunSpec& spec,
               const std::vector<std::pair<std::uint32_t, std::string>>& slices);
  /// The same: what it was called when that was written, and by whom.
  void restore_name(const Term& term, ServerId id);
  const Term& term() const { return term_; }
  ServerId id() const { return id_; }

  const std::optional<RunSpec>& spec() const { return spec_; }
  const std::vector<ServerEntry>& servers() const { return view_.servers; }
  /// Null: this server has no such slice.
  const SliceState* slice(std::uint32_t number) const;
  std::int64_t num_slices() const { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t num_bytes() const;  ///< of the values of its slices
  std::int64_t lost_pushes() const { return lost_pushes_; }
  bool is_over() const { return is_over_; }
  const std::string& refusal() const { return refusal_; }

 private:
  struct Held {
    std::uint64_t sequence = 0;
    Send send;
  };
  struct WaitingPull {
    SessionId session = 0;
    Pull pull;
  };
  struct WaitingSum {
    SessionId session = 0;
    std::int64_t step = 0;
  };
  struct Follower {
    std::uint64_t acknowledged = 0;
    bool is_waited_for = false;  // its acknowledgement is needed for an answer
    bool has_copy = false;       // it was sent one, or began with nothing as all did
  };
  struct Entry {
    std::unique_ptr<SliceState> state;
    bool is_head = false;
    std::uint64_t sequence = 0;              // of the last event
    std::uint64_t head_view = 0;             // the newest view that a head has spoken of
    std::map<ServerId, Follower> followers;  // of a head
    std::deque<Held> held;
    std::vector<WaitingPull> pulls;
    std::vector<WaitingSum> sums;
    bool is_changed = false;
    bool is_unwritten = false;    // it came as a whole, and no disk has it yet
    SessionId acknowledges_to{};  // of a follower: where that is told once it is; 0: nowhere
  };

  void take(const Welcome& welcome);
  void forget_run();
  void tell_ready();
  void take(const View& view);
  void take_role(std::uint32_t slice, Entry& entry, bool is_new);
  void take(SessionId session, const Push& push);
  void take(SessionId session, const Pull& pull);
  void take(SessionId session, const AwaitSum& await);
  void take(SessionId session, const Load& load);
  void take(SessionId session, const Read& read);
  void take(SessionId session, const Clocks& clocks);
  void take(SessionId session, const Replicate& replicate);
  void take(SessionId session, const Copy& copy);
  template <typename T>
  void take(SessionId session, const T& other);
  template <typename T>
  bool is_early(SessionId session, const T& message);
  void take_early();

  Entry* headed(SessionId session, std::uint32_t slice, bool loads = false);
  void check_lane(std::int64_t lane) const;
  void change(std::uint32_t slice, Entry& entry, const Message& event);
  static void apply(SliceState& state, const Message& event);
  void acknowledge(std::uint32_t slice, Entry& entry, SessionId session);
  void reply(Entry& entry, SessionId session, Message message);
  void release(Entry& entry);
  void answer_waiting(std::uint32_t slice, Entry& entry);
  bool answer(std::uint32_t slice, Entry& entry, SessionId session, const Pull& pull);
  void copy_to(std::uint32_t slice, Entry& entry, ServerId server);
  void say_lost(std::uint32_t slice, Entry& entry, std::int64_t lost, std::int64_t step);
  void note_lost(std::uint32_t slice, Entry& entry, std::int64_t lane, std::int64_t step);
  void note_clocks(std::uint32_t slice, Entry& entry);
  SliceContext context() const { return {.spec = &*spec_, .stream = &stream_}; }

  Stream& stream_;
  std::string address_;
  Term term_;  // of the newest scheduler
  ServerId id_ = kNobody;
  bool keeps_on_disk_ = false;
  bool is_restored_ = false;  // it is not `id_`, but has what that one had written
  std::optional<RunSpec> spec_;
  View view_;
  std::map<std::uint32_t, Entry> entries_;
  std::map<std::int64_t, std::int64_t> clocks_;  // of lanes, as workers have said
  /// What others have sent who know more, until this server has their view or the run's spec too.
  std::vector<std::pair<SessionId, Message>> early_;
  std::vector<Send> sends_;
  std::vector<std::string> notices_;
  std::int64_t lost_pushes_ = 0;
  bool is_over_ = false;
  std::string refusal_;
};

}  // namespace atl::param_server
