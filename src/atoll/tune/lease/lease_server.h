#pragma once

// Leases trials to workers on other machines: the tuner's side.

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

/// Leases trials to workers, which connect to the address of this server. A trial is leased to at
/// most one worker; messages about earlier leases are ignored. Workers fetch all files that they
/// need from this server. A worker's machine may be lost at any time, so the result of a trial
/// counts only when its files are back in the trial's directory here. For one thread.
class LeaseServer : private wire::SessionHandler {
 public:
  /// How a lease ended.
  struct Outcome {
    Job job;
    std::string worker;
    /// The exit status of the trial's process. Nothing: the worker is gone, has left, or does not
    /// know the lease; the trial must be trained again.
    std::optional<int> code;
    std::string line;  ///< the last line of the process; without `code`, why the lease ended
  };

  /// Listens at once. `study` must outlive this. Throws Error(kUser) when the server cannot listen
  /// at the address, or when an input does not exist.
  explicit LeaseServer(const Study& study);
  ~LeaseServer() override;

  /// HOST:PORT
  std::string address() const { return server_->address(); }
  /// Readable when step() has something to do.
  int wake_fd() const { return wake_.fd(); }
  /// The number of workers that are connected and have the study's files.
  int num_workers() const;

  /// Restores a lease that the tuner's previous process had made: its worker may still train the
  /// trial. The lease ends when that worker has not connected within lease_s. Call this before the
  /// first step().
  void expect(const Trial& trial);
  /// The instance of the worker with the most free slots, for Tuner::next(). Nothing when no slot
  /// is free.
  std::optional<std::string> free_worker() const;
  /// Leases the trial to the worker with this instance. Call this after the start of the trial was
  /// recorded: Trial::starts is the number of the lease.
  void lease(const std::string& worker, const Trial& trial, const Job& job);

  /// Handles the messages that have come, and workers that are gone. Does not wait. Returns the
  /// leases that have ended. Throws Error(kIo).
  std::vector<Outcome> step();
  /// Tells all connected workers that the study is over, and closes their sessions.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Letter {
    enum class Kind { kOpened, kReceived, kClosed } kind;
    wire::SessionId session;
    std::string text;  // kReceived: the frame; kOpened: the peer's name
  };
  struct Worker {
    std::string name;
    std::string peer;  // the name in its certificate
    int slots = 0;
    bool is_ready = false;
    std::optional<wire::SessionId> session;
    Clock::time_point gone_since;  // while there is no session
  };
  struct Held {
    LeaseId id;
    Job job;
    std::int64_t reached = 0;
    std::string worker;            // the worker's instance
    bool is_claimed = true;        // false: from expect(), and no worker has reported it yet
    std::vector<FileEntry> files;  // as the worker lists them when the trial's process has ended
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

  std::map<wire::SessionId, std::string> peers_;      // names in certificates, of open sessions
  std::map<wire::SessionId, std::string> instances_;  // of sessions that have sent Hello
  std::map<std::string, Worker> workers_;             // by instance
  std::map<int, Held> held_;                          // by trial

  LeaseFiles files_;
  std::unique_ptr<wire::Server> server_;  // last: its threads use the rest
};

}  // namespace atl::tune
