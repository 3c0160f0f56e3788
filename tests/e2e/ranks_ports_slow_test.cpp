// Ranks of one host can be reached from nowhere else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "ranks_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::Finished;
using e2e::Program;
using e2e::Ranks;
using ::testing::IsEmpty;

// Sockets that are open in a process, by the numbers that the system gives them.
std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), ignored)) {
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    if (target.starts_with("socket:[")) found.insert(target.substr(8, target.size() - 9));
  }
  return found;
}

// As the system writes 127.0.0.1, ::1 and ::ffff:127.0.0.1 on a little-endian machine.
bool is_loopback(const std::string& host) {
  return host == "0100007F" || host == "00000000000000000000000001000000" ||
         host == "0000000000000000FFFF00000100007F";
}

// Addresses at which a process listens and others than this host may call, as the system has them.
std::vector<std::string> listens_to_others(pid_t pid) {
  const std::set<std::string> sockets = sockets_of(pid);
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // the heading
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      constexpr const char* kListens = "0A";
      if (state != kListens || !sockets.contains(inode)) continue;
      if (!is_loopback(local.substr(0, local.find(':')))) found.push_back(local);
    }
  }
  return found;
}

class RanksOfOneHost : public Ranks, public ::testing::WithParamInterface<const char*> {};

TEST_P(RanksOfOneHost, ListenToNobodyElse) {
  const std::string backend = GetParam();
  if (backend == "mpi" && !e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  Program parent(ranked(
      "run", {"-n", "2", "--backend=" + backend, "--train.steps=10000000", "--log.every=1"}));
  ASSERT_TRUE(trains_soon("run"));
  for (const pid_t pid : processes()) {
    // mpirun itself takes a port of all addresses, whatever it is told.
    if (command_line(pid).starts_with("mpirun ")) continue;
    EXPECT_THAT(listens_to_others(pid), IsEmpty()) << command_line(pid);
  }
  parent.send(SIGTERM);
  const Finished finished = parent.wait();
  EXPECT_EQ(finished.exit_code, 128 + SIGTERM) << finished.err;
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksOfOneHost, ::testing::Values("gloo", "tcp", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace atl
