// kill -9 of parts of a run with parameter servers that `atoll train -n` has started: of a server
// whose disk is the only copy of its slices, and of the process that started all of them.
// ATOLL_KILL_POINTS says how many kills of servers (by hand: 50).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "servers_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::Finished;
using e2e::Program;
using ::testing::HasSubstr;
using ::testing::Not;

// Processes whose parent is `parent` and whose command line has `word` in it.
std::vector<pid_t> children_of(pid_t parent, const std::string& word) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat"), words(entry.path() / "cmdline");
    std::string text, line;
    std::getline(stat, text);
    std::getline(words, line, '\n');
    const auto after = text.rfind(')');
    if (after == std::string::npos || line.find(word) == std::string::npos) continue;
    std::istringstream rest(text.substr(after + 1));
    char state = 0;
    pid_t its_parent = 0;
    rest >> state >> its_parent;
    if (its_parent == parent) found.push_back(std::stoi(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Whether it is gone, or all that is left is its exit code, which nobody may fetch.
bool has_ended(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(stat, text)) return true;
  const auto after = text.rfind(')');
  return after == std::string::npos || text.substr(after + 2, 1) == "Z";
}

class ServerDeaths : public e2e::Servers {
 protected:
  std::int64_t step_of(const std::string& name) const {
    std::ifstream log(root_.path / name / "metrics.jsonl");
    std::string line;
    std::int64_t step = -1;
    while (std::getline(log, line)) {
      const std::string mark = "\"step\":";
      const auto at = line.find(mark);
      if (at != std::string::npos)
        step = std::max<std::int64_t>(step, std::atoll(line.c_str() + at + mark.size()));
    }
    return step;
  }
};

// Nothing is written for an hour, but for what a server begins with.
TEST_F(ServerDeaths, AServerThatDiesBeforeItsFirstWriteHasTheStateItBeganWith) {
  Program run(
      served("early", 2, 2,
             {"--train.steps=60", "--log.every=1", "--sync.disk_s=3600", "--eval.every=0"}));
  ASSERT_TRUE(soon([&] { return step_of("early") >= 3; })) << run.errors();
  const std::vector<pid_t> servers = children_of(run.pid(), "--join=");
  ASSERT_EQ(servers.size(), 2U);
  ASSERT_EQ(::kill(servers[0], SIGKILL), 0);
  const Finished finished = run.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("lost, up to step"));
  EXPECT_TRUE(fs::exists(checkpoint("early", 60)));
}

TEST_F(ServerDeaths, ARunGoesOnThoughItsServersAreKilled) {
  const char* wish = std::getenv("ATOLL_KILL_POINTS");
  const int kills = wish == nullptr ? 4 : std::atoi(wish);
  const RngStream random(7, RngPurpose::kSynthetic);
  std::uint64_t draws = 0;
  const int steps = 40 * (kills + 1);
  Program run(served("killed", 2, 2,
                     {fmt::format("--train.steps={}", steps), "--log.every=1", "--sync.disk_s=0.05",
                      "--eval.every=0", "--checkpoint.every=0"}));
  for (int kill = 0; kill < kills; ++kill) {
    const std::int64_t from = step_of("killed");
    const auto more = static_cast<std::int64_t>(1 + random.word(draws++) % 10);
    ASSERT_TRUE(soon([&] { return step_of("killed") >= from + more; }, std::chrono::minutes(3)))
        << "after kill " << kill << "\n"
        << run.errors();
    std::vector<pid_t> servers;
    ASSERT_TRUE(soon([&] { return (servers = children_of(run.pid(), "--join=")).size() == 2; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random.word(draws++) % 60'000));
    ::kill(servers[random.word(draws++) % 2], SIGKILL);
  }
  const Finished finished = run.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, Not(HasSubstr("without an answer")));
}

// Workers that ended politely would ask a scheduler that is dead, and keep the run locked.
TEST_F(ServerDeaths, WorkersAndServersEndWithTheProcessThatStartedThem) {
  const std::vector<std::string> words =
      served("orphans", 2, 2, {"--train.steps=100000", "--log.every=1", "--comm.timeout_s=3600"});
  Program run(words);
  ASSERT_TRUE(soon([&] { return step_of("orphans") >= 2; })) << run.errors();
  const std::vector<pid_t> all = children_of(run.pid(), "");
  ASSERT_EQ(all.size(), 4U);
  run.send(SIGKILL);
  run.wait();
  for (const pid_t pid : all) EXPECT_TRUE(soon([&] { return has_ended(pid); })) << pid;
  const Finished again = e2e::atoll(served("orphans", 2, 2, {"--train.steps=4"}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

}  // namespace
}  // namespace atl
