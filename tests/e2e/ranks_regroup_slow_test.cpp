// Ranks of `atoll launch` that are killed, and others that take their places, while the rest go on
// in place.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::exact;
using e2e::Finished;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> value(const metrics::Record& record, const std::string& name) {
  for (const auto& [key, value] : record.values) {
    if (key != name) continue;
    if (const auto* real = std::get_if<double>(&value)) return *real;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  }
  return std::nullopt;
}

class Regroup : public e2e::Elastic {
 protected:
  static std::vector<std::string> in_place(std::vector<std::string> more, int zero,
                                           int steps = 300) {
    more.push_back(fmt::format("--dp.zero={}", zero));
    // With ZeRO 0 every rank has everything anyhow.
    more.push_back(fmt::format("--launch.replicate={}", zero > 0));
    return exact(std::move(more), steps);
  }
  /// The records that tell of another number of ranks.
  std::vector<metrics::Record> regroupings(const std::string& name) const {
    std::vector<metrics::Record> found;
    for (const metrics::Record& record : records(name)) {
      if (value(record, "regroup_seconds")) found.push_back(record);
    }
    return found;
  }
  /// No step was written twice, none is before its predecessor, and at most `missing` are not
  /// there.
  void check_steps(const std::string& name, int steps, int missing) const {
    std::vector<std::int64_t> seen;
    for (const metrics::Record& record : records(name)) {
      if (value(record, "lr")) seen.push_back(record.step);
    }
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end())) << name;
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << name;
    EXPECT_GE(static_cast<int>(seen.size()), steps - missing) << name;
    EXPECT_EQ(seen.back(), steps);
  }
};

// What a kill in the middle of training has cost.
struct Interruption {
  double wall_s = 0;     // from the kill to the end of the next step
  double regroup_s = 0;  // as the ranks tell
  std::int64_t lost_steps = 0;
};

std::optional<Interruption> interruption(const std::vector<metrics::Record>& records,
                                         double killed_at) {
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::optional<double> seconds = value(records[i], "regroup_seconds");
    if (!seconds || i == 0) continue;
    for (std::size_t next = i + 1; next < records.size(); ++next) {
      if (!value(records[next], "lr")) continue;
      return Interruption{records[next].wall_time_s - killed_at, *seconds,
                          records[i - 1].step - records[i].step};
    }
  }
  return std::nullopt;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

TEST_F(Regroup, KillsAtAnyMomentCostNoBit) {
  train_whole(300);
  std::mt19937 random(11);
  std::vector<double> walls, regroups;
  for (int i = 0; i < num_kills(); ++i) {
    const int zero = i % 4;
    const std::string name = fmt::format("run-{}", i);
    std::vector<std::string> more = in_place({"--min-ranks=2", "--max-ranks=3"}, zero);
    more.emplace_back((i + i / 4) % 2 == 0 ? "--comm.algorithm=direct" : "--comm.algorithm=ring");
    Program agent(launch(name, more));
    // Mostly while it trains.
    const std::int64_t steps =
        random() % 8 == 0 ? 0 : 1 + static_cast<std::int64_t>(random() % 200);
    ASSERT_TRUE(steps == 0 || took(name, steps));
    const auto moment = std::chrono::microseconds(random() % 50000);
    const int rank = static_cast<int>(random() % 3);
    std::this_thread::sleep_for(moment);
    const double killed_at = now_s();
    kill_rank(rank);
    const Finished finished = agent.wait();
    EXPECT_EQ(finished.exit_code, 0) << "ZeRO " << zero << ", rank " << rank << finished.err;
    EXPECT_EQ(weights(name, 300), weights("whole", 300)) << finished.err;
    EXPECT_THAT(processes(), IsEmpty());
    check_steps(name, 300, 1);
    const auto cost = interruption(records(name), killed_at);
    std::filesystem::remove_all(root_.path / name);
    if (!cost) continue;  // it had not begun, or was over
    walls.push_back(cost->wall_s);
    regroups.push_back(cost->regroup_s);
    // What was told is not taken back: only the step that was under way is begun again.
    EXPECT_LE(cost->lost_steps, 0) << finished.err;
  }
  fmt::print(
      "{} kills regrouped in place: median {:.3f} s from the kill to the next step, worst "
      "{:.3f} s; median {:.3f} s of that to regroup\n",
      walls.size(), median(walls),
      walls.empty() ? 0 : *std::max_element(walls.begin(), walls.end()), median(regroups));
}

TEST_F(Regroup, AnotherRankLeadsWhenTheFirstIsLost) {
  train_whole(300);
  std::vector<std::string> more = in_place({"--min-ranks=2", "--max-ranks=3"}, /*zero=*/2);
  std::replace(more.begin(), more.end(), std::string("--log.tensorboard=false"),
               std::string("--log.tensorboard=true"));
  Program agent(launch("run", more));
  ASSERT_TRUE(took("run", 50));
  const pid_t victim = kill_rank(0);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(
      finished.err,
      AllOf(HasSubstr(fmt::format("warning: rank 0 (pid {}) was killed by signal 9", victim)),
            HasSubstr("going on in place with 2 ranks (restart 1 of 3)"),
            HasSubstr("\ninfo: finished; the model is in"), Not(HasSubstr("[rank "))));
  for (const char* line : {"step   1/300 ", "step 200/300 ", "step 300/300 ", "held-out loss "}) {
    EXPECT_NE(finished.out.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(weights("run", 300), weights("whole", 300));
  check_steps("run", 300, 1);
  EXPECT_THAT(regroupings("run"), SizeIs(1));
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root_.path / "run")) {
    event_files += entry.path().filename().string().find("tfevents") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(event_files, 2);
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Regroup, LostRanksAreReplacedInPlace) {
  for (const int zero : {0, 3}) {
    const std::string name = fmt::format("run-{}", zero);
    // However long it takes, it is stopped where another run can end too.
    std::vector<std::string> more = in_place(
        {"--min-ranks=1", "--max-ranks=2", "--regrow-after=0.1", "--optim.schedule=constant"}, zero,
        e2e::kEndless);
    Program agent(launch(name, more));
    ASSERT_TRUE(took(name, 50));
    kill_rank(1);
    ASSERT_TRUE(soon([&] { return regroupings(name).size() == 2; }));
    // Who has joined is as good as the others.
    kill_rank(0);
    // The loss and the next that joins may be one regrouping.
    ASSERT_TRUE(soon([&] {
      const std::vector<metrics::Record> all = regroupings(name);
      return all.size() >= 3 && value(all.back(), "regroup_ranks") == 2;
    }));
    agent.send(SIGTERM);
    const Finished finished = agent.wait();
    EXPECT_EQ(finished.exit_code, 143) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("going on in place with 1 rank (restart 1 of 3)"),
                                    HasSubstr("going on in place with 1 rank (restart 2 of 3)"),
                                    HasSubstr("starting 1 rank to join the 1 that train"),
                                    Not(HasSubstr("checkpoint with"))));
    EXPECT_THAT(processes(), IsEmpty());
    const auto steps = static_cast<int>(records(name).back().step);
    check_steps(name, steps, 2);
    const std::string whole = "whole-" + name;
    ASSERT_EQ(run_ranks(whole, exact({"--optim.schedule=constant"}, steps)).exit_code, 0);
    EXPECT_EQ(weights(name, steps), weights(whole, steps)) << finished.err;
  }
}

TEST_F(Regroup, ManyMayBeKilledOneAfterTheOther) {
  train_whole(300);
  Program agent(launch("run", in_place({"--min-ranks=1", "--max-ranks=4"}, /*zero=*/3)));
  std::size_t killed = 0;
  for (const int rank : {3, 0, 1}) {
    ASSERT_TRUE(took("run", 30 * static_cast<std::int64_t>(killed + 1)));
    kill_rank(rank);
    ++killed;
    ASSERT_TRUE(soon([&] { return regroupings("run").size() == killed; }));
  }
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("going on in place with 1 rank (restart 3 of 3)"));
  EXPECT_EQ(weights("run", 300), weights("whole", 300));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Regroup, WithoutACopyTheCheckpointHelps) {
  train_whole(300);
  Program agent(
      launch("run", in_place({"--min-ranks=2", "--max-ranks=4", "--max-restarts=2"}, /*zero=*/1)));
  ASSERT_TRUE(took("run", 50));
  const pid_t first = process_of(1), second = process_of(2);
  ::kill(first, SIGKILL);
  ::kill(second, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("going on from the newest checkpoint with 2 ranks"),
                                  HasSubstr("going on from "), Not(HasSubstr("restart 2"))));
  EXPECT_EQ(weights("run", 300), weights("whole", 300));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Regroup, AllRestartsMayBeUsedUp) {
  Program agent(launch("run", in_place({"--max-ranks=3", "--max-restarts=1"}, 0, e2e::kEndless)));
  ASSERT_TRUE(took("run", 10));
  kill_rank(1);
  ASSERT_TRUE(soon([&] { return regroupings("run").size() == 1; }));
  const std::int64_t step = records("run").back().step;
  ASSERT_TRUE(took("run", step + 10));
  kill_rank(2);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 1);
  // It was the third, and has moved down.
  EXPECT_THAT(finished.err, AllOf(HasSubstr("error: rank 1 (pid "),
                                  HasSubstr("all restarts are used up (--max-restarts=1)")));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Regroup, WhoDiffersDoesNotJoin) {
  Program agent(launch("run", in_place({"--max-ranks=2", "--regrow-after=0.1"}, 0, e2e::kEndless)));
  ASSERT_TRUE(took("run", 10));
  std::string text = read_file(recipe());
  const std::string before = "dropout = 0.1";
  text.replace(text.find(before), before.size(), "dropout = 0.2");
  write_file(recipe(), text);
  kill_rank(1);
  ASSERT_TRUE(soon([&] { return process_of(2) != 0; }));
  ASSERT_TRUE(soon([&] { return process_of(3) != 0; })) << "it was tried again";
  agent.send(SIGTERM);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 143) << finished.err;
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("warning: a rank that was to join did not (the rank that joins has "
                              "`train.dropout = 0.2` and rank 0 has `train.dropout = 0.1`"),
                    HasSubstr("going on without it")));
  EXPECT_THAT(processes(), IsEmpty());
}

}  // namespace
}  // namespace atl
