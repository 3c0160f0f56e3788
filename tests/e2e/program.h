#pragma once

// What the tests of the program from outside share: starting it, and what came of it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"

namespace atl::e2e {

/// An empty directory, removed with the object.
struct TemporaryDirectory {
  std::filesystem::path path;

  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "atoll-e2e-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;  // a test that failed may have left odd things
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
};

/// How a process ended.
struct Finished {
  int exit_code = -1;  ///< 128 + the signal that ended it
  std::string out;
  std::string err;
};

/// A running `atoll`. It is killed when the test leaves it before wait().
class Program {
 public:
  /// Starts it with standard output going to `out` (a file of its own when empty).
  explicit Program(std::vector<std::string> arguments, const std::string& out = "") {
    const std::string out_path = out.empty() ? (directory_.path / "out").string() : out;
    const std::string err_path = (directory_.path / "err").string();
    has_own_out_ = out.empty();
    arguments.insert(arguments.begin(), test_program().string());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(::open(out_path.c_str(), O_WRONLY | O_CREAT, 0644), STDOUT_FILENO);
      ::dup2(::open(err_path.c_str(), O_WRONLY | O_CREAT, 0644), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Program() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return child_; }
  void send(int signal) const { ::kill(child_, signal); }
  /// What it has written to standard error so far.
  std::string errors() const {
    const std::filesystem::path path = directory_.path / "err";
    return std::filesystem::exists(path) ? read_file(path) : "";
  }

  /// Waits until it ends.
  Finished wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(child_, &status, 0), child_);
    child_ = -1;
    Finished finished;
    finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (has_own_out_) finished.out = read_file(directory_.path / "out");
    finished.err = read_file(directory_.path / "err");
    return finished;
  }

 private:
  TemporaryDirectory directory_;
  bool has_own_out_ = true;
  pid_t child_ = -1;
};

/// Runs `atoll` to its end, with standard output going to `out` (a file of its own when empty).
inline Finished atoll(const std::vector<std::string>& arguments, const std::string& out = "") {
  return Program(arguments, out).wait();
}

/// The whole message when it is one line that begins as errors do.
inline std::string error_line(const Finished& finished) {
  EXPECT_THAT(finished.out, ::testing::IsEmpty());
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  EXPECT_THAT(finished.err, ::testing::StartsWith("error: "));
  return finished.err.substr(0, finished.err.find('\n'));
}

}  // namespace atl::e2e
