#pragma once

// Child processes that cannot outlive their parent, and what they write.

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// A file descriptor that is closed with its owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close();
  int release();

 private:
  int fd_;
};

/// What a child is started with. Its standard input is empty, unless `has_input`.
struct ChildOptions {
  std::vector<std::string> argv;  ///< argv[0] is looked up in PATH when it has no slash
  bool shows_output = false;      ///< standard output is the parent's; otherwise it is dropped
  bool shows_errors = false;      ///< standard error is the parent's; otherwise it is piped
  bool has_report_pipe = false;   ///< descriptor kReportFd of the child is a pipe to the parent
  bool has_input = false;         ///< standard input is a pipe from the parent
  int death_signal = 9;           ///< what the child gets when the parent dies
};

/// The descriptor that a child with a report pipe writes its reports to.
constexpr int kReportFd = 3;

/// A running child in a process group of its own. Its signal mask is empty, whatever the parent's.
class Child {
 public:
  /// Throws Error(kIo) when the system starts no more processes; a program that cannot be run ends
  /// with exit code 127 and a line on standard error.
  explicit Child(const ChildOptions& options);
  ~Child();
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;

  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  /// Readable when the child has ended.
  int pid_fd() const { return pid_fd_.get(); }
  /// What it writes, non-blocking; closed (-1) where there is no pipe or all has been read.
  Fd& errors() { return errors_; }
  Fd& reports() { return reports_; }
  const Fd& errors() const { return errors_; }
  const Fd& reports() const { return reports_; }
  Fd& input() { return input_; }

  /// Sends a signal to the child alone.
  void signal(int number) const;
  /// SIGKILL to the child and all it has started.
  void kill() const;
  /// Takes the wait status of a child that has ended; false while it runs.
  bool reap(int& status);

 private:
  pid_t pid_ = -1;
  bool running_ = false;
  Fd pid_fd_, errors_, reports_, input_;
};

/// Cuts what comes through a pipe into lines. They end with a newline, or with a carriage return
/// before it, as ssh's own do. A line without end is cut at 64 KiB.
class LineReader {
 public:
  /// Reads what there is and calls `take` for each line; closes `fd` at its end.
  void read(Fd& fd, const std::function<void(std::string_view line)>& take);
  /// Gives what has come without a newline.
  void finish(const std::function<void(std::string_view line)>& take);

 private:
  std::string pending_;
};

}  // namespace atl
