// Not tests but what the tests here stand on; this program is also what they start.

#include "processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

extern char** environ;

namespace atl::dist {

namespace {

std::string read_all(int fd) {
  std::string text;
  char bytes[4096];
  ::lseek(fd, 0, SEEK_SET);
  for (ssize_t n = 0; (n = ::read(fd, bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

Processes::~Processes() {
  for (int place = 0; place < size(); ++place) {
    signal(place, SIGKILL);
    wait(place);
    ::close(all_[static_cast<std::size_t>(place)].output);
  }
}

int Processes::start(const std::vector<std::string>& command) {
  Process process;
  process.output = ::memfd_create("output", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, process.output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, process.output, 2);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int code = ::posix_spawnp(&process.pid, command.front().c_str(), &actions, nullptr,
                                  arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) ADD_FAILURE() << command.front() << ": " << std::strerror(code);
  process.ended = code != 0;
  all_.push_back(process);
  return size() - 1;
}

void Processes::signal(int place, int signal) {
  const Process& process = all_[static_cast<std::size_t>(place)];
  if (!process.ended) ::kill(process.pid, signal);
}

const Ended& Processes::wait(int place, double timeout_s) {
  Process& process = all_[static_cast<std::size_t>(place)];
  if (process.ended) return process.result;
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0));
  pollfd one{fd, POLLIN, 0};
  if (::poll(&one, 1, static_cast<int>(timeout_s * 1000)) == 0) ::kill(process.pid, SIGKILL);
  ::close(fd);
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  process.ended = true;
  if (WIFEXITED(status)) process.result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) process.result.signal = WTERMSIG(status);
  process.result.output = read_all(process.output);
  return process.result;
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    const std::string file = std::string(rest.substr(0, colon)) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return true;
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  }
  return false;
}

}  // namespace atl::dist

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--rank") == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return atl::dist::run_rank({argv + 2, argv + argc});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
