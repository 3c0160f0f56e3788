#pragma once

// A rank's process, on this machine or another, as the code that watches a group sees it.

#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::launch {

/// How a process ended.
struct ProcessEnd {
  int exit_code = 0;     ///< meaningless when a signal ended it
  int signal = 0;        ///< that ended it
  bool is_lost = false;  ///< the agent that had started it is gone, and nobody knows more
};

/// Takes a line that a process wrote.
using LineTaker = std::function<void(std::string_view line)>;

/// One process that is running or has ended. It is killed with the object.
class WatchedProcess {
 public:
  virtual ~WatchedProcess() = default;

  /// 0: it runs on another host.
  virtual pid_t pid() const = 0;
  /// Until reap() has told its end.
  virtual bool running() const = 0;
  /// Adds what becomes readable when it writes or ends.
  virtual void watch(std::vector<pollfd>& polls) const = 0;
  /// Gives the lines that it has written, reports among them. Does not wait.
  virtual void listen(const LineTaker& take) = 0;
  /// A stop signal, as if it had been sent there. `again`: not for the first time, or before
  /// there is anything to save.
  virtual void signal(int number, bool again) = 0;
  /// Ends it and what it has started. mpirun is asked first, so that it can end its ranks.
  virtual void kill() = 0;
  /// Its end, once, after its last lines; nothing while it runs.
  virtual std::optional<ProcessEnd> reap(const LineTaker& take) = 0;
};

/// How a rank's process is reached.
enum class Reach : std::uint8_t {
  kHere,    ///< it is a child
  kSsh,     ///< a child of sshd on `host`, which ends when its standard input does
  kMpirun,  ///< mpirun is the child, and all ranks are its own
  kAgent,   ///< started by an agent that has joined (server.h)
};

/// One process to start.
struct RankProcess {
  int rank = 0;
  Reach reach = Reach::kHere;
  int num_ranks = 1;  ///< of kMpirun: those that it starts
  std::string host;   ///< of kSsh and kAgent
  std::vector<std::string> argv;
  bool shows_output = false;  ///< its standard output is this process's
  /// Starts it, of kAgent.
  std::function<std::unique_ptr<WatchedProcess>()> start;
};

/// Starts it. Throws Error(kIo) when the system starts no more processes.
std::unique_ptr<WatchedProcess> start_process(const RankProcess& process);

}  // namespace atl::launch
