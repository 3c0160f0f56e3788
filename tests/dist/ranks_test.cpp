// Real processes, one a rank, over each backend: what they compute, and what they say when one of
// them dies, stops, or calls something else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
#include "atoll/comm/rendezvous.h"
#include "processes.h"

namespace atl::dist {
namespace {

using testing::HasSubstr;

struct Case {
  const char* backend;  // as run_rank has them
  int size;
};

std::string missing_piece(const std::string& backend) {
  if (backend.starts_with("mpi")) {
    if (!comm::has_mpi()) return "this build has no MPI";
    if (!has_program("mpirun")) return "there is no mpirun here";
  } else if (backend.starts_with("gloo") && !comm::has_gloo()) {
    return "this build has no Gloo";
  }
  return "";
}

/// How many processes have this word among their arguments.
int processes_with(const std::string& word) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string arguments((std::istreambuf_iterator<char>(file)), {});
    count += arguments.find(word) != std::string::npos ? 1 : 0;
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

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.backend + std::to_string(info.param.size);
  std::erase(name, '-');
  return name;
}

class Suite : public Ranks {};
TEST_P(Suite, IsBitwiseTheSerialChain) {
  Island island = start("suite");
  for (const Ended& ended : island.wait()) EXPECT_EQ(ended.exit_code, 0) << ended.output;
}
INSTANTIATE_TEST_SUITE_P(Dist, Suite,
                         testing::Values(Case{"mpi", 2}, Case{"mpi", 4}, Case{"mpi-alone", 3},
                                         Case{"gloo", 2}, Case{"gloo", 4}, Case{"gloo-tcp", 3},
                                         Case{"tcp", 2}, Case{"tcp", 4}, Case{"tcp-alone", 2},
                                         Case{"tcp-alone", 3}, Case{"tcp-alone", 4}),
                         case_name);

class Faults : public Ranks {};

TEST_P(Faults, AKilledRankIsNamedByAllOthers) {
  Island island = start("killed");
  if (island.mpi()) {  // mpirun ends the others itself, and may be the first
    const Ended& ended = island.wait_for(0);
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_LT(ended.seconds, 10) << ended.output;
    return;
  }
  const double died = island.wait_for(1).seconds;
  EXPECT_EQ(island.wait_for(1).signal, SIGKILL);
  for (const int rank : {0, 2}) {
    const Ended& ended = island.wait_for(rank);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, testing::ContainsRegex("peer 1: (all_reduce|barrier) #")) << rank;
    EXPECT_THAT(ended.output, HasSubstr("is gone"));
    EXPECT_LT(ended.seconds - died, 5);
  }
}

TEST_P(Faults, AStoppedRankIsNamedAfterTheTimeout) {
  Island island = start("stopped", 1.0);
  for (const int rank : {0, 2}) {
    const Ended& ended = island.wait_for(rank);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, HasSubstr("peer 1: all_reduce #3 of world, f32 (1048576)"));
    if (in_windows()) {
      EXPECT_THAT(ended.output, HasSubstr("its last call was all_reduce #2 of world, f32 (1000)"));
      EXPECT_THAT(ended.output, HasSubstr("the process is stopped"));
    }
  }
}

TEST_P(Faults, AnotherCallIsNamedOnBothSides) {
  Island island = start("mismatched");
  std::string all;
  for (const Ended& ended : island.wait()) {
    EXPECT_NE(ended.exit_code, 0);
    all += ended.output;
  }
  EXPECT_THAT(all, HasSubstr("peer 1: all_reduce #2 of world, f32 (60)"));
  EXPECT_THAT(all, HasSubstr("calls broadcast #2 of world, f32 (60)"));
  // mpirun ends the others as soon as one has said it.
  if (!island.mpi()) {
    EXPECT_THAT(all, testing::ContainsRegex("peer [02]: broadcast #2 of world"));
  }
}

TEST_P(Faults, AMessageOfAnotherSizeIsNamed) {
  Island island = start("wrong_size", 5);
  std::string all;
  for (const Ended& ended : island.wait()) all += ended.output;
  EXPECT_THAT(all, HasSubstr("peer 0: exchange"));
  EXPECT_THAT(all, testing::ContainsRegex("rank 0.* sends (240 bytes where|more than the 160 bytes "
                                          "that) rank 1 expects"));
}

TEST_P(Faults, AnErrorOfOneRankReachesAll) {
  Island island = start("aborted");
  std::string all;
  for (const Ended& ended : island.wait()) {
    EXPECT_NE(ended.exit_code, 0);
    all += ended.output;
  }
  EXPECT_THAT(all, HasSubstr("error: its file is missing"));
  if (!island.mpi()) {
    for (const int rank : {0, 2}) {
      EXPECT_THAT(island.wait_for(rank).output, HasSubstr("peer 1: "));
      EXPECT_THAT(island.wait_for(rank).output, HasSubstr("ended with an error: its file is"));
    }
  }
}

TEST_P(Faults, ARankThatLeavesIsNamed) {
  const std::string backend = GetParam().backend;
  if (backend == "mpi" || backend == "gloo-tcp") GTEST_SKIP() << "it waits there until all leave";
  Island island = start("left", 5);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(island.wait_for(rank).output, HasSubstr("peer 1: "));
    EXPECT_THAT(island.wait_for(rank).output, HasSubstr("has left"));
  }
}

TEST_P(Faults, SurvivorsGatherAgain) {
  if (GetParam().backend == std::string("mpi")) GTEST_SKIP() << "MPI cannot";
  Island island = start("regrouped");
  island.wait();
  EXPECT_EQ(island.wait_for(1).signal, SIGKILL);
  EXPECT_THAT(island.wait_for(0).output, HasSubstr("lost 1\nregrouped 0 of 2"));
  EXPECT_THAT(island.wait_for(2).output, HasSubstr("lost 1\nregrouped 1 of 2"));
}

INSTANTIATE_TEST_SUITE_P(Dist, Faults,
                         testing::Values(Case{"mpi", 3}, Case{"gloo", 3}, Case{"gloo-tcp", 3},
                                         Case{"tcp", 3}, Case{"tcp-alone", 3}),
                         case_name);

}  // namespace
}  // namespace atl::dist
