#pragma once

// The inside of an island's client: one thread runs the state machine (Member) and alone talks to
// the coordinator; a worker thread reduces and fetches.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/island/client/client_options.h"
#include "atoll/island/client/member.h"
#include "atoll/island/client/rank_exchange.h"
#include "atoll/island/client/rank_orders.h"
#include "atoll/island/client/schedule_book.h"
#include "atoll/island/client/state_fetch.h"
#include "atoll/island/client/trainer_messages.h"
#include "atoll/island/outer/state.h"
#include "atoll/wire/session.h"

namespace atl::island {

/// A client's threads and all that they share.
struct ClientState {
  ClientState(const ClientOptions& options, OuterState& outer, RankExchange& exchange,
              OtherRanks* others, std::vector<BatchRange> holds, bool in_round);
  ~ClientState();

  // A piece of work that takes long, done by the worker.
  using Job = std::function<void(const std::stop_token& cancel)>;

  // What happened; on which connection to the coordinator, if on one.
  struct PendingEvent {
    decltype(MemberEvent::what) what;
    std::uint64_t connection = 0;
  };

  void post(decltype(MemberEvent::what) what, std::uint64_t of_connection = 0);
  void run_machine();
  void run_worker();
  void give(Job job, std::stop_source cancel);
  void fail(const Error& error);

  void perform(const SendToCoordinator& send);
  void perform(const Connect& connect);
  void perform(const StartReduce& start);
  void perform(const StopReduce& stop);
  void perform(const Swap& swap);
  void perform(const FetchState& fetch);
  void perform(const StopFetch& stop);
  void perform(const UploadState& upload);
  void perform(const Adopt& adopt);
  void perform(const StartRound& round);
  void perform(const UseSchedule& use);
  void perform(const Halt& halt);
  void perform(const Part& part);
  void perform(const Warn& warn);

  void connect();
  void tell_of(const PendingEvent& event);
  void note_members();
  void reduce(const StartReduce& start, const std::stop_token& cancel);
  void fetch(const FetchState& fetch, const std::stop_token& cancel);
  void offer(const Contribution& contribution, std::uint64_t num_adopted);
  std::string codec_of(std::int64_t outer_step) const;
  std::uint64_t order(const RankOrder& order, bool wants_answers = false);
  std::vector<RankAnswer> answers(std::uint64_t number);
  void push(OuterChange change);
  void push_news(ClientNews one);
  static double seconds_since(std::chrono::steady_clock::time_point start);
  double now() const { return seconds_since(begin); }

  ClientOptions options;
  OuterState& outer;
  RankExchange& exchange;
  OtherRanks* others;  // null: there are none
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

  // The machine's thread alone.
  std::optional<Member> member;
  std::unique_ptr<wire::Session> session;
  std::uint64_t connection = 0;  // number of `session`
  std::optional<std::chrono::steady_clock::time_point> connects_at;
  bool is_told_of_absence = false;
  island::View noted;
  bool has_errors = false;  // of a codec, for some outer step
  bool has_begun = false;   // the run: there was an outer step, or a lease
  std::stop_source reducing, fetching;
  Stamp reducing_stamp;
  std::chrono::steady_clock::time_point reduce_began;
  std::uint64_t sent_before = 0, received_before = 0;

  // With gossip: of the last mean, see OuterChange.
  std::atomic<double> spread = 0;
  // The worker's: what was measured, and state that is being fetched.
  Measurements measured;  // but for what a contribution says
  StateFetch state_fetch;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<PendingEvent> events;
  std::deque<std::pair<Job, std::stop_source>> jobs;
  std::deque<std::unique_ptr<ClientNews>> news;
  std::uint64_t others_sent = 0, others_received = 0;  // bytes, as the other ranks answered last
  std::uint64_t num_adopted = 0;  // changes that dropped work, and that the trainer has seen
  int num_active = 1;
  IslandId own_id = kNobody;
  Contacts contacts;           // of the others
  std::uint64_t num_news = 0;  // ever, and that it is over
  std::uint64_t seen_news = 0;
  ScheduleBook schedules;
  bool is_finished = false;
  bool has_parted = false;
  bool is_stopping = false;
  std::optional<Error> fatal;

  std::thread machine, worker;
};

}  // namespace atl::island
