#pragma once

// Processes that play ranks: this test program again, with arguments that say which.

#include <string>
#include <vector>

namespace atl::dist {

/// What a process ended with.
struct Ended {
  int exit_code = -1;  ///< of one that exited
  int signal = 0;      ///< of one that was killed
  std::string output;  ///< standard output and standard error
};

/// Some processes that run at the same time. Those that are left are killed with the object.
class Processes {
 public:
  Processes() = default;
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Starts one; returns its place.
  int start(const std::vector<std::string>& command);
  void signal(int place, int signal);
  /// Waits for one, at most so long; then it is killed, which shows in its signal. Longer than what
  /// ranks wait for each other by default, so that these say why first.
  const Ended& wait(int place, double timeout_s = 180);
  int size() const { return static_cast<int>(all_.size()); }

 private:
  struct Process {
    int pid = -1;
    int output = -1;  // a file without a name
    bool ended = false;
    Ended result;
  };
  std::vector<Process> all_;
};

/// The path of this program.
std::string own_program();
/// Whether a program of that name is in PATH.
bool has_program(const std::string& name);

/// What a rank does; runs in a process of its own. `arguments`, those behind "--rank": backend,
/// body, timeout, a word by which the test finds its processes, and but for mpi rank, size,
/// rendezvous.
int run_rank(const std::vector<std::string>& arguments);

}  // namespace atl::dist
