#pragma once

// Tests on machines of their own: four nodes in networks of their own (cluster.sh).

#include <cstdio>
#include <cstdlib>

#include "ranks_fixture.h"

namespace atl::e2e {

/// What a command printed, both streams, and how it ended.
struct Said {
  int exit_code = -1;
  std::string text;
};

/// Runs on four nodes, which are left out without root, networks, or the programs that they need.
class Cluster : public Elastic {
 protected:
  /// Starts the nodes, with `kind` of cluster.sh. Skips the test where one of `programs` (with
  /// spaces between them) is missing; `packages` says what has them.
  void start_nodes(const std::string& kind, const std::string& programs,
                   const std::string& packages) {
    std::string each = "true";
    for (std::size_t at = 0; at < programs.size();) {
      const std::size_t end = std::min(programs.find(' ', at), programs.size());
      each += " && command -v " + programs.substr(at, end - at);
      at = end + 1;
    }
    if (::geteuid() != 0 || std::system(("(" + each + ") >/dev/null 2>&1").c_str()) != 0) {
      GTEST_SKIP() << "needs root and the packages " << packages;
    }
    if (std::system("unshare --net --mount --uts true >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "this machine lets nobody make networks";
    }
    Elastic::SetUp();
    is_started_ = true;
    const Said start = called(fmt::format("{} start {} {}", script(), dir(), kind));
    ASSERT_EQ(start.exit_code, 0) << start.text;
  }
  void TearDown() override {
    if (!is_started_) return;
    if (HasFailure()) {
      std::fputs(called(fmt::format("tail -n 30 {0}/*.log {0}/*.out", dir())).text.c_str(), stderr);
    }
    called(fmt::format("{} stop {}", script(), dir()));
  }

  /// Starts, stops and enters the nodes.
  static std::string script() {
    return (test_source_dir() / "tests" / "e2e" / "cluster.sh").string();
  }
  std::string dir() const { return cluster_.path.string(); }
  /// Of a command on this machine.
  Said called(const std::string& command) const {
    const std::string file = path("said");
    const int status =
        std::system(fmt::format("({}) >'{}' 2>&1 </dev/null", command, file).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(file)};
  }
  /// Where people log in.
  Said on_login(const std::string& command) const {
    return called(fmt::format("timeout 120 {} on {} login {}", script(), dir(), command));
  }
  /// `atoll train` into the run called `name`.
  std::string words(const std::string& name, std::vector<std::string> more, int steps) const {
    std::string line = test_program().string();
    for (const std::string& word : ranked(name, exact(std::move(more), steps))) line += " " + word;
    return line;
  }
  /// The bits of a run are those of one rank.
  void expect_whole(const std::string& name, int steps) {
    if (!std::filesystem::exists(root_.path / "whole")) train_whole(steps);
    EXPECT_EQ(weights(name, steps), weights("whole", steps)) << name;
  }

 private:
  TemporaryDirectory cluster_;
  bool is_started_ = false;
};

}  // namespace atl::e2e
