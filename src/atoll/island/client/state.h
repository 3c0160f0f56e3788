#pragma once

// The inside of an island's client: one thread runs the state machine (Member) and alone talks to
// the coordinator; a worker thread reduces and fetches.

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
#include "atoll/compress/codec.h"
#include "atoll/island/client/client.h"
#include "atoll/island/client/exchange.h"
#include "atoll/island/client/member.h"
#include "atoll/island/client/outer_codecs.h"
#include "atoll/island/client/schedule_book.h"
#include "atoll/island/client/state_fetch.h"
#include "atoll/wire/access_token.h"
#include "atoll/wire/blobs.h"
#include "atoll/wire/server.h"
#include "atoll/wire/session.h"

namespace atl::island {

/// Euclidean.
double norm_of(std::span<const float> values);

/// A client's threads and all that they share.
struct Client::State {
  State(const ClientOptions& options, OuterState& outer, std::vector<BatchRange> holds,
        bool in_round);
  ~State();

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
  void perform(const UploadState& upload);
  void upload(const FragmentState& fragment, const std::stop_token& cancel);
  void perform(const Adopt& adopt);
  void perform(const StartRound& round);
  void perform(const UseSchedule& use);
  void perform(const Halt& halt);
  void perform(const Warn& warn);

  void connect();
  void tell_of(const PendingEvent& event);
  void note_members();
  void reduce(const StartReduce& start, const std::stop_token& cancel);
  void fetch(const FetchState& fetch, const std::stop_token& cancel);
  void offer(const Contribution& contribution, std::uint64_t num_adopted);
  std::string codec_of(std::int64_t outer_step) const;
  void publish(int fragment);
  void push(OuterChange change);
  void push_news(ClientNews one);
  static double seconds_since(std::chrono::steady_clock::time_point start);
  double now() const { return seconds_since(begin); }

  ClientOptions options;
  OuterState& outer;
  OuterCodecs codecs;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  const std::string relay_token = wire::new_access_token(),
                    peer_token = wire::new_access_token();  // see Join
  wire::BlobStore store{[this](const wire::Caller& caller) {
    return wire::is_access_token(peer_token, caller.access_token)
               ? std::optional<std::string>("a member")
               : std::nullopt;
  }};
  std::unique_ptr<wire::Server> server;
  std::unique_ptr<Exchange> exchange;

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
  // State that is being put to the coordinator: what of each fragment is there, by hash. Of a
  // fragment that was interrupted, on the connection of that number; the thread's while it runs.
  std::map<std::string, std::vector<bool>> uploaded;
  std::uint64_t uploaded_on = 0;
  std::jthread uploading;
  Stamp reducing_stamp;
  std::chrono::steady_clock::time_point reduce_began;
  std::uint64_t sent_before = 0, received_before = 0;

  // By fragment: what the codec could not say, before and after the last offer. The worker changes
  // them; `error` under the mutex.
  std::vector<std::vector<float>> error, error_next;
  // The worker's: the mean of the outer step under way, and state that is being fetched.
  std::vector<float> mean;
  Measurements measured;  // but for what a contribution says
  StateFetch state_fetch;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<PendingEvent> events;
  std::deque<std::pair<Job, std::stop_source>> jobs;
  std::deque<std::unique_ptr<ClientNews>> news;
  std::uint64_t num_adopted = 0;  // changes that dropped work, and that the trainer has seen
  int num_active = 1;
  IslandId own_id = kNobody;
  Contacts contacts;           // of the others
  std::uint64_t num_news = 0;  // ever, and that it is over
  std::uint64_t seen_news = 0;
  ScheduleBook schedules;
  bool is_finished = false;
  bool is_stopping = false;
  std::optional<Error> fatal;

  std::thread machine, worker;
};

}  // namespace atl::island
