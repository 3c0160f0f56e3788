#pragma once

// The program on a terminal, and with pipes that nobody reads.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program.h"

namespace atl::e2e {

/// `atoll` on a terminal of its own. It is killed when the test leaves it before wait().
class TerminalProgram {
 public:
  TerminalProgram(std::vector<std::string> arguments, int columns) {
    arguments.insert(arguments.begin(), test_program().string());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const winsize size = size_of(columns);
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    // Without this, Ctrl-C throws away what the program has written and nobody has read yet.
    termios settings{};
    EXPECT_EQ(::tcgetattr(terminal_, &settings), 0);
    settings.c_lflag |= NOFLSH;
    EXPECT_EQ(::tcsetattr(terminal_, TCSANOW, &settings), 0);
  }
  ~TerminalProgram() {
    if (child_ >= 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    if (terminal_ >= 0) ::close(terminal_);
  }
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void resize(int columns) const {
    const winsize size = size_of(columns);
    EXPECT_EQ(::ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }

  /// What a person types: "\x03" is Ctrl-C.
  void type(std::string_view keys) const {
    EXPECT_EQ(::write(terminal_, keys.data(), keys.size()), std::ssize(keys));
  }
  /// Closes the terminal, as who closes its window does.
  void hang_up() { ::close(std::exchange(terminal_, -1)); }

  /// Reads what it writes until `has_seen` says true of all that was read so far, or until its end.
  void read_until(const std::function<bool(const std::string&)>& has_seen) {
    char buffer[4096];
    while (!has_seen(written_)) {
      // Linux answers EIO when the last process has closed the other side.
      const ssize_t n = ::read(terminal_, buffer, sizeof buffer);
      if (n <= 0) return;
      written_.append(buffer, static_cast<std::size_t>(n));
    }
  }

  /// Reads to its end; `out` has all that it wrote.
  Finished wait() {
    read_until([](const std::string&) { return false; });
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    child_ = -1;
    Finished finished;
    finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    finished.out = written_;
    return finished;
  }

 private:
  static winsize size_of(int columns) {
    return {.ws_row = 24,
            .ws_col = static_cast<unsigned short>(columns),
            .ws_xpixel = 0,
            .ws_ypixel = 0};
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string written_;
};

/// Runs `atoll` with a pipe as standard output whose reader leaves after so many bytes, as `head`
/// does; before it begins where that is 0.
inline Finished atoll_with_head(std::vector<std::string> arguments, std::size_t bytes) {
  const TemporaryDirectory directory;
  const std::string err_path = (directory.path / "err").string();
  arguments.insert(arguments.begin(), test_program().string());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  if (bytes == 0) ::close(ends[0]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(::open(err_path.c_str(), O_WRONLY | O_CREAT, 0644), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (bytes > 0) {
    char byte = 0;
    for (std::size_t i = 0; i < bytes && ::read(ends[0], &byte, 1) == 1; ++i) {
    }
    ::close(ends[0]);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  Finished finished;
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  finished.err = read_file(err_path);
  return finished;
}

}  // namespace atl::e2e
