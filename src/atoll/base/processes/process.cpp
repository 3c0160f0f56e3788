#include "atoll/base/processes/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "atoll/base/error.h"

namespace atl {

namespace {

// Two ends of a pipe, neither of which a child inherits unless it is given it.
struct Pipe {
  Fd read, write;

  Pipe() {
    std::array<int, 2> ends = {-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw make_error(ErrorKind::kIo, "cannot make a pipe to a process: {}; raise `ulimit -n`",
                       std::strerror(errno));
    }
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

void set_non_blocking(const Fd& fd) {
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// What the child does between fork and exec, where only calls that are safe in a signal handler
// are allowed: other threads may have held locks when it was forked.
struct Birth {
  pid_t parent;
  int death_signal;
  int in, out, err, report;
  char* const* argv;

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, death_signal);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (in >= 0) ::dup2(in, STDIN_FILENO);
    if (out >= 0) ::dup2(out, STDOUT_FILENO);
    if (err >= 0) ::dup2(err, STDERR_FILENO);
    // dup2 onto itself would leave close-on-exec set.
    if (report == kReportFd) {
      ::fcntl(kReportFd, F_SETFD, 0);
    } else if (report >= 0) {
      ::dup2(report, kReportFd);
    }
    ::execvp(argv[0], argv);
    for (const char* piece :
         {"error: cannot run ", static_cast<const char*>(argv[0]), ": ",
          errno == ENOENT ? "there is no such program\n" : "the system refuses\n"}) {
      if (::write(STDERR_FILENO, piece, std::strlen(piece)) < 0) break;
    }
    ::_exit(127);
  }
};

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

void Fd::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int Fd::release() {
  return std::exchange(fd_, -1);
}

Child::Child(const ChildOptions& options) {
  std::vector<char*> argv;
  for (const std::string& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  Pipe errors, reports, input;
  const Birth birth = {.parent = ::getpid(),
                       .death_signal = options.death_signal,
                       .in = options.has_input ? input.read.get() : null.get(),
                       .out = options.shows_output ? -1 : null.get(),
                       .err = options.shows_errors ? -1 : errors.write.get(),
                       .report = options.has_report_pipe ? reports.write.get() : -1,
                       .argv = argv.data()};
  pid_ = ::fork();
  if (pid_ < 0) {
    throw make_error(ErrorKind::kIo,
                     "cannot start a process: {}; raise `ulimit -u`, or start fewer",
                     std::strerror(errno));
  }
  if (pid_ == 0) birth.run();
  running_ = true;
  ::setpgid(pid_, pid_);  // whoever comes first; kill() may not find it otherwise
  pid_fd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pid_fd_.open()) {
    const int reason = errno;
    kill();
    ::waitpid(pid_, nullptr, 0);
    throw make_error(ErrorKind::kIo, "cannot watch a process: {}", std::strerror(reason));
  }
  if (!options.shows_errors) errors_ = std::move(errors.read);
  if (options.has_report_pipe) reports_ = std::move(reports.read);
  if (options.has_input) input_ = std::move(input.write);
  for (const Fd* fd : {&errors_, &reports_}) {
    if (fd->open()) set_non_blocking(*fd);
  }
}

Child::~Child() {
  if (!pid_fd_.open() || !running_) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const {
  if (running_) ::kill(pid_, number);
}

void Child::kill() const {
  if (!running_) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

bool Child::reap(int& status) {
  if (!running_) return true;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  ::kill(-pid_, SIGKILL);  // what it may have started ends with it; its number is still taken
  running_ = false;
  return ::waitpid(pid_, &status, 0) == pid_;
}

namespace {

std::string_view without_return(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

void LineReader::read(Fd& fd, const std::function<void(std::string_view line)>& take) {
  constexpr std::size_t kLongest = 64 << 10;
  std::array<char, 16 << 10> buffer;
  while (fd.open()) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      fd.close();
      return;
    }
    pending_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = pending_.find('\n', begin)) != pending_.npos;) {
      take(without_return(std::string_view(pending_).substr(begin, end - begin)));
      begin = end + 1;
    }
    pending_.erase(0, begin);
    if (pending_.size() > kLongest) finish(take);
  }
}

void LineReader::finish(const std::function<void(std::string_view line)>& take) {
  if (!pending_.empty()) take(without_return(pending_));
  pending_.clear();
}

}  // namespace atl
