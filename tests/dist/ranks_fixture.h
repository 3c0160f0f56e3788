#pragma once

// Ranks of a world that are real processes, each over one of the backends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
#include "atoll/comm/rendezvous/rendezvous.h"
#include "processes.h"

namespace atl::dist {

/// A backend and how many ranks.
struct Case {
  const char* backend;  // as run_rank has them
  int size;
};

/// What this machine lacks for a backend; empty: nothing.
inline std::string missing_piece(const std::string& backend) {
  if (backend.starts_with("mpi")) {
    if (!comm::has_mpi()) return "this build has no MPI";
    if (!has_program("mpirun")) return "there is no mpirun here";
  } else if (backend.starts_with("gloo") && !comm::has_gloo()) {
    return "this build has no Gloo";
  }
  return "";
}

/// How many processes have this word among their arguments.
inline int processes_with(const std::string& word) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ostringstream arguments;  // its operator does not throw when a process ends meanwhile
    arguments << std::ifstream(entry.path() / "cmdline").rdbuf();
    count += arguments.str().find(word) != std::string::npos ? 1 : 0;
  }
  return count;
}

/// Ranks that run a body: processes of mpirun's for mpi, else of ours.
class Island {
 public:
  Island(const std::string& backend, int size, const std::string& body, double timeout_s = 60)
      : mpi_(backend.starts_with("mpi")) {
    const std::vector<std::string> rank = {
        own_program(), "--rank", backend, body, std::to_string(timeout_s), tag_};
    if (mpi_) {
      std::string words = "mpirun --allow-run-as-root --oversubscribe --tag-output";
      // What MPI keeps at its end is no leak of ours.
      words += fmt::format(" -x ASAN_OPTIONS=detect_leaks=0 -n {}", size);
      std::vector<std::string> command;
      std::istringstream stream(words);
      for (std::string word; stream >> word;) command.push_back(word);
      command.insert(command.end(), rank.begin(), rank.end());
      processes_.start(command);
      return;
    }
    server_ = std::make_unique<comm::RendezvousServer>("127.0.0.1", 0);
    for (int r = 0; r < size; ++r) {
      std::vector<std::string> command = rank;
      command.insert(command.end(), {std::to_string(r), std::to_string(size), server_->address()});
      processes_.start(command);
    }
  }

  ~Island() {
    for (int place = 0; place < processes_.size(); ++place) {
      processes_.signal(place, SIGTERM);
      if (!mpi_) processes_.signal(place, SIGCONT);  // one that is stopped ends only then
      processes_.wait(place, 5);
    }
    EXPECT_EQ(processes_with(tag_), 0) << "processes are left";
  }

  /// How all of them ended; of mpirun it is one.
  std::vector<Ended> wait() {
    std::vector<Ended> ended;
    for (int place = 0; place < processes_.size(); ++place) ended.push_back(processes_.wait(place));
    return ended;
  }
  const Ended& wait_for(int rank) { return processes_.wait(mpi_ ? 0 : rank); }
  bool mpi() const { return mpi_; }

 private:
  std::string tag_ = fmt::format("island-{}-{}", ::getpid(), static_cast<const void*>(this));
  bool mpi_;
  std::unique_ptr<comm::RendezvousServer> server_;
  Processes processes_;
};

/// A test of some ranks over each backend.
class Ranks : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string missing = missing_piece(GetParam().backend);
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  /// Whether the ranks share memory, and so know more of each other.
  bool in_windows() const {
    const std::string backend = GetParam().backend;
    return backend != "gloo-tcp" && backend != "tcp-alone";
  }
  Island start(const std::string& body, double timeout_s = 60) {
    return Island(GetParam().backend, GetParam().size, body, timeout_s);
  }
};

/// "glootcp3" of {"gloo-tcp", 3}.
inline std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.backend + std::to_string(info.param.size);
  std::erase(name, '-');
  return name;
}

}  // namespace atl::dist
