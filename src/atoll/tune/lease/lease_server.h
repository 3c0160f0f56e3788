#pragma once

// The tuner's side of workers on other machines.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/tune/lease/inputs.h"
#include "atoll/tune/lease/lease_files.h"
#include "atoll/tune/lease/wake_event.h"
#include "atoll/tune/trial/tuner.h"
#include "atoll/wire/server.h"

namespace atl::tune {

/// Leases trials to workers, which call at one address. A trial is with at most one worker; what
/// another one that once had it says of it no longer counts. Every file that a worker needs comes
/// from here, and what a trial has written comes back into its directory here before its result
/// counts: a worker's machine may be lost at any time.
class LeaseServer : private wire::SessionHandler {
 public:
  /// What came of a lease.
  struct Outcome {
    Job job;
    std::string worker;
    /// Of the trial's process; nothing: the worker is gone, or gave it back, and the trial is due
    /// again.
    std::optional<int> code;
    std::string line;  ///< the last that it said; why there is none
  };

  /// Listens. `study` must outlive this. Throws Error(kUser) for an address that cannot be listened
  /// at, or inputs that are not there.
  explicit LeaseServer(const Study& study);
  ~LeaseServer() override;

  /// HOST:PORT
  std::string address() const { return server_->address(); }
  /// Readable when step() has something to do.
  int wake_fd() const { return wake_.fd(); }
  /// How many workers there are now.
  int num_workers() const;

  /// Takes back what a tuner that was killed had leased, until lease_s have passed: a trial's
  /// worker may still have it. To be called before the first step().
  void expect(const Trial& trial);
  /// The worker that has a slot free, of several the one with most of them: what is given to
  /// Tuner::next(). Nothing when all are busy.
  std::optional<std::string> free_worker() const;
  /// Leases to that worker. `trial` as it is after its start was written.
  void lease(const std::string& worker, const Trial& trial, const Job& job);

  /// Takes in what workers have said. Throws Error(kIo).
  std::vector<Outcome> step();
  /// Tells all workers that the study is over.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Letter {
    enum class Kind { kOpened, kReceived, kClosed } kind;
    wire::SessionId session;
    std::string text;  // a frame; a name
  };
  struct Worker {
    std::string name;
    std::string peer;  // of its certificate
    int slots = 0;
    bool is_ready = false;
    std::optional<wire::SessionId> session;
    Clock::time_point gone_since;  // without a session
  };
  struct Held {
    LeaseId id;
    Job job;
    std::int64_t reached = 0;
    std::string worker;            // its instance
    bool is_claimed = true;        // by the worker, since this process began
    std::vector<FileEntry> files;  // of the trial's directory, once its process has ended
    int code = 0;
    std::string line;
  };

  void opened(wire::SessionId session, const wire::Peer& peer) override;
  void received(wire::SessionId session, std::string frame) override;
  void closed(wire::SessionId session, const std::string& why) override;
  void put(Letter letter);

  void take(const Letter& letter, std::vector<Outcome>& outcomes);
  void take(Worker* worker, wire::SessionId session, const LeaseMessage& message,
            std::vector<Outcome>& outcomes);
  void hello(wire::SessionId session, const Hello& hello);
  void ready(const std::string& instance, const Ready& ready, std::vector<Outcome>& outcomes);
  void ended(const std::string& instance, const Ended& ended, std::vector<Outcome>& outcomes);
  void delivered(const std::string& instance, const Delivered& done,
                 std::vector<Outcome>& outcomes);
  void ask_for(const Held& held);
  Held* find(const std::string& instance, const LeaseId& lease);
  void give_up(const std::string& instance, const std::string& why, std::vector<Outcome>& outcomes);
  void close(int trial);
  void send(wire::SessionId session, const LeaseMessage& message);
  void send(const std::string& instance, const LeaseMessage& message);
  std::string name_of(const std::string& instance) const;

  const Study& study_;
  std::vector<LocalInput> inputs_;
  std::vector<FileEntry> tokens_;
  Welcome welcome_;
  std::chrono::duration<double> patience_;
  Clock::time_point began_ = Clock::now();

  WakeEvent wake_;
  std::mutex mutex_;
  std::deque<Letter> letters_;

  std::map<wire::SessionId, std::string> peers_;      // names in certificates
  std::map<wire::SessionId, std::string> instances_;  // of sessions that have said hello
  std::map<std::string, Worker> workers_;             // by instance
  std::map<int, Held> held_;                          // by trial

  LeaseFiles files_;
  std::unique_ptr<wire::Server> server_;  // last: its threads use the rest
};

}  // namespace atl::tune
