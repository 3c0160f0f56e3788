#include "atoll/base/processes/sandbox.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "atoll/base/error.h"
#include "atoll/base/processes/process.h"

namespace atl {

namespace {

constexpr int kNamespaces =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
constexpr int kCannotRun = 127;  // as a shell says it
constexpr std::size_t kMostErrors = 4096;

// All that a child needs, made before fork(): after it, only what is safe in a signal handler may
// be called, as other threads may have held any lock.
struct Plan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::string program;  // with its directory
  std::string uid_map, gid_map, mount_options, tmp;
  SandboxLimits limits;
  int input = -1, output = -1, errors = -1;
  bool has_namespaces = false;
};

void write_all_of(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
  ::close(fd);
}

// From <linux/mount.h>, which does not go together with <sys/mount.h> everywhere.
struct MountAttributes {
  std::uint64_t set = 0, clear = 0, propagation = 0, user_namespace = 0;
};

// Namespaces of this process, where it may write below plan.tmp alone; false where the system does
// not allow that.
bool enter_namespaces(const Plan& plan) {
  if (::unshare(kNamespaces) != 0) return false;
  write_all_of("/proc/self/setgroups", "deny");
  write_all_of("/proc/self/uid_map", plan.uid_map);
  write_all_of("/proc/self/gid_map", plan.gid_map);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  constexpr unsigned kRecursive = 0x8000;        // AT_RECURSIVE
  const MountAttributes read_only = {.set = 1};  // MOUNT_ATTR_RDONLY
  if (::syscall(SYS_mount_setattr, -1, "/", kRecursive, &read_only, sizeof(read_only)) != 0) {
    return false;
  }
  // Services of this machine listen at sockets there: they would start processes outside.
  ::mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k");
  return ::mount("tmpfs", plan.tmp.c_str(), "tmpfs", MS_NOSUID | MS_NODEV,
                 plan.mount_options.c_str()) == 0;
}

// From here on no program has rights that others have not, whatever its user is here: with them it
// could make the mounts writable again.
void give_up_rights() {
  for (unsigned long right = 0; ::prctl(PR_CAPBSET_READ, right, 0, 0, 0) >= 0; ++right) {
    ::prctl(PR_CAPBSET_DROP, right, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  ::syscall(SYS_capset, &header, none);
}

void limit(int resource, rlim_t value) {
  const rlimit both = {value, value};
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &both);
}

[[noreturn]] void run_program(const Plan& plan) {
  const auto bytes = static_cast<rlim_t>(plan.limits.memory_mib) << 20;
  limit(RLIMIT_AS, bytes);
  limit(RLIMIT_FSIZE, bytes);
  limit(RLIMIT_CPU, static_cast<rlim_t>(std::ceil(plan.limits.seconds)));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 256);
  // Without a namespace of its own it would count all that the user runs.
  if (plan.has_namespaces) limit(RLIMIT_NPROC, static_cast<rlim_t>(plan.limits.processes));
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (plan.has_namespaces) give_up_rights();
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < 32; ++number) ::signal(number, SIG_DFL);
  ::execve(plan.program.c_str(), plan.argv.data(), plan.environment.data());
  const char* const why = std::strerror(errno);
  [[maybe_unused]] ssize_t written = ::write(2, why, std::strlen(why));
  ::_exit(kCannotRun);
}

// Waits for `child`, and for whatever else has been left to this process; ends as the child did.
[[noreturn]] void wait_and_exit(pid_t child) {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno != EINTR) ::_exit(kCannotRun);
    if (ended == child) break;
  }
  if (WIFSIGNALED(status)) {
    // Not by the same signal: the first process of a namespace is not killed by its own.
    ::_exit(128 + WTERMSIG(status));
  }
  ::_exit(WEXITSTATUS(status));
}

// Whoever waits for the program must not keep its pipes open, nor those of other programs.
void close_all() {
  ::syscall(SYS_close_range, 0U, ~0U, 0U);
}

// The first child: it makes the namespaces, whose first process is its child, whose child is the
// program. All go with the first: each dies with its parent.
[[noreturn]] void run_first(Plan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  ::setsid();
  ::dup2(plan.input, 0);
  ::dup2(plan.output, 1);
  ::dup2(plan.errors, 2);
  ::syscall(SYS_close_range, 3U, ~0U, 0U);
  plan.has_namespaces = enter_namespaces(plan);
  const pid_t keeper = ::fork();
  if (keeper < 0) ::_exit(kCannotRun);
  if (keeper > 0) {
    close_all();
    wait_and_exit(keeper);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  // That of its own processes alone; some containers do not allow it.
  if (plan.has_namespaces) {
    ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  }
  const pid_t program = ::fork();
  if (program < 0) ::_exit(kCannotRun);
  if (program == 0) run_program(plan);
  close_all();
  wait_and_exit(program);
}

void plan_namespaces(Plan& plan, const std::string& tmp, std::int64_t memory_mib) {
  plan.uid_map = fmt::format("{0} {0} 1", ::getuid());
  plan.gid_map = fmt::format("{0} {0} 1", ::getgid());
  plan.mount_options = fmt::format("size={}m,mode=0700", memory_mib);
  plan.tmp = tmp;
}

// As execvp() looks for it; the name itself where it is nowhere.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::string rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    std::string candidate = (end == 0 ? "." : rest.substr(0, end)) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.erase(0, end + 1);
  }
  return name;
}

// A directory that goes with this.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "atoll-sandbox-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw make_error(ErrorKind::kIo, "cannot make {}: {}", name, std::strerror(errno));
    }
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The program's own: what a grader needs to find interpreters and to spell text, and no secrets.
std::vector<std::string> environment_for(const std::string& tmp) {
  std::vector<std::string> kept = {"TMPDIR=" + tmp, "HOME=" + tmp};
  for (const char* name :
       {"PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TZ"}) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
    if (value != nullptr) kept.push_back(std::string(name) + "=" + value);
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

void open_pair(bool is_socket, Fd& ours, Fd& theirs) {
  int ends[2] = {-1, -1};
  const int result = is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                               : ::pipe2(ends, O_CLOEXEC);
  if (result != 0) {
    throw make_error(ErrorKind::kIo, "no descriptors for a program: {}", std::strerror(errno));
  }
  ours = Fd(ends[0]);
  theirs = Fd(ends[1]);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
}

// What goes between a program and this process, until it is over or breaks a limit.
class Talk {
 public:
  Talk(Fd input, Fd output, Fd errors, const std::string& text, const SandboxLimits& limits)
      : input_(std::move(input)),
        output_(std::move(output)),
        errors_(std::move(errors)),
        text_(text),
        limits_(limits),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(limits.seconds))) {}

  // Returns when `pid_fd` says that the program is over and all that it wrote is read, or a limit
  // is broken: `result.end` then says which.
  void run(int pid_fd, SandboxResult& result) {
    result.end = SandboxResult::End::kExited;
    bool is_over = false;
    while (true) {
      std::array<pollfd, 4> polled = {
          pollfd{is_over ? -1 : pid_fd, POLLIN, 0}, pollfd{input_.get(), POLLOUT, 0},
          pollfd{output_.get(), POLLIN, 0}, pollfd{errors_.get(), POLLIN, 0}};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) {
        if (!is_over) result.end = SandboxResult::End::kTime;
        return;
      }
      const int ready = ::poll(polled.data(), polled.size(),
                               static_cast<int>(std::min<std::int64_t>(left, 60'000)));
      if (ready < 0 && errno != EINTR) return;
      if (ready <= 0) continue;
      if (polled[0].revents != 0) is_over = true;
      if (polled[1].revents != 0) give();
      if (polled[2].revents != 0) take(output_, result.output, limits_.output_bytes + 1);
      if (polled[3].revents != 0) take(errors_, result.errors, kMostErrors);
      if (std::ssize(result.output) > limits_.output_bytes) {
        result.output.resize(static_cast<std::size_t>(limits_.output_bytes));
        result.end = SandboxResult::End::kOutput;
        return;
      }
      if (is_over && !output_.open() && !errors_.open()) return;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void give() {
    const ssize_t sent = ::send(input_.get(), text_.data() + given_, text_.size() - given_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) given_ += static_cast<std::size_t>(sent);
    const bool may_go_on = sent >= 0 || errno == EAGAIN || errno == EINTR;
    if (!may_go_on || given_ == text_.size()) input_.close();
  }

  // Keeps `most` bytes at most; the rest is read and dropped.
  static void take(Fd& fd, std::string& text, std::size_t most) {
    std::array<char, 4096> piece;
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return fd.close();
    text.append(piece.data(),
                std::min(static_cast<std::size_t>(count), most - std::min(most, text.size())));
  }

  Fd input_, output_, errors_;
  const std::string& text_;
  std::size_t given_ = 0;
  const SandboxLimits& limits_;
  Clock::time_point deadline_;
};

// Ends whatever is left, and says how the first child ended.
int end_all(pid_t first) {
  ::kill(-first, SIGKILL);  // its session, where there are no namespaces
  ::kill(first, SIGKILL);
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

}  // namespace

bool has_sandbox() {
  static const bool has = [] {
    const TemporaryDirectory tmp;
    Plan plan;
    plan_namespaces(plan, tmp.path(), /*memory_mib=*/1);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(enter_namespaces(plan) ? 0 : 1);
    int status = 1;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }();
  return has;
}

SandboxResult run_in_sandbox(const std::vector<std::string>& command, const std::string& input,
                             const SandboxLimits& limits) {
  const TemporaryDirectory tmp;
  std::vector<std::string> words = command;
  std::vector<std::string> environment = environment_for(tmp.path());
  Fd our_input, our_output, our_errors, input_end, output_end, errors_end;
  open_pair(true, our_input, input_end);
  open_pair(false, our_output, output_end);
  open_pair(false, our_errors, errors_end);
  Plan plan = {.argv = pointers(words),
               .environment = pointers(environment),
               .program = find_program(command.at(0)),
               .limits = limits,
               .input = input_end.get(),
               .output = output_end.get(),
               .errors = errors_end.get()};
  plan_namespaces(plan, tmp.path(), limits.memory_mib);
  SandboxResult result;
  // Now, as later its exit code may be the program's own.
  if (::access(plan.program.c_str(), X_OK) != 0) {
    result.errors = std::strerror(errno);
    return result;
  }
  const pid_t first = ::fork();
  if (first < 0) {
    throw make_error(ErrorKind::kIo, "cannot start {}: {}", command.at(0), std::strerror(errno));
  }
  if (first == 0) run_first(plan);
  input_end.close();
  output_end.close();
  errors_end.close();
  const Fd pid_fd(static_cast<int>(::syscall(SYS_pidfd_open, first, 0U)));
  if (pid_fd.get() < 0) {
    const int why = errno;
    end_all(first);
    throw make_error(ErrorKind::kIo, "this system does not tell when {} is over (pidfd_open): {}",
                     command.at(0), std::strerror(why));
  }
  Talk(std::move(our_input), std::move(our_output), std::move(our_errors), input, limits)
      .run(pid_fd.get(), result);
  const int status = end_all(first);
  if (result.end != SandboxResult::End::kExited) return result;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.status = code;
  if (code > 128) {
    result.end = SandboxResult::End::kSignalled;
    result.status = code - 128;
  }
  return result;
}

}  // namespace atl
