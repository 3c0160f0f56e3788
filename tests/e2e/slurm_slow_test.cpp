// Runs that a real Slurm starts: a control daemon and four nodes in networks of their own. They are
// left out where Slurm is not installed, or without root.

#include <cstdlib>
#include <fstream>

#include "ranks_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::exact;
using e2e::TemporaryDirectory;
using e2e::test_program;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr const char* kCluster = ATOLL_SOURCE_DIR "/tests/e2e/slurm_cluster.sh";

// What a command printed, both streams, and how it ended.
struct Said {
  int exit_code = -1;
  std::string text;
};

class Slurm : public e2e::Elastic {
 protected:
  void SetUp() override {
    if (::geteuid() != 0 ||
        std::system("command -v slurmctld slurmd munged ip >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "needs root and the packages slurm-wlm, munge and iproute2";
    }
    Elastic::SetUp();
    const Said start = called(fmt::format("{} start {}", kCluster, cluster_.path.string()));
    ASSERT_EQ(start.exit_code, 0) << start.text;
  }
  void TearDown() override {
    if (HasFailure()) called(fmt::format("tail -n 30 {}/*.log >&2", cluster_.path.string()));
    called(fmt::format("{} stop {}", kCluster, cluster_.path.string()));
  }

  Said called(const std::string& command) const {
    const std::string file = path("said");
    const int status = std::system(fmt::format("({}) >'{}' 2>&1 </dev/null", command, file).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, e2e::read_file(file)};
  }
  // Where people log in.
  Said on_login(const std::string& command) const {
    return called(fmt::format("timeout 120 {} on {} login {}", kCluster, cluster_.path.string(),
                              command));
  }
  // `atoll train` into the run called `name`.
  std::string words(const std::string& name, std::vector<std::string> more, int steps) const {
    std::string line = test_program().string();
    for (const std::string& word : ranked(name, exact(std::move(more), steps))) line += " " + word;
    return line;
  }
  // A batch script that runs these lines; returns the number of its job.
  std::string submitted(const std::string& options, const std::string& lines) const {
    const std::string script = path("script.sh");
    e2e::write_file(script, "#!/bin/bash\n" + lines + "\n");
    const Said said = on_login(fmt::format("sbatch --parsable --output={} --open-mode=append {} {}",
                                           path("job.out"), options, script));
    EXPECT_EQ(said.exit_code, 0) << said.text;
    return said.text.substr(0, said.text.find_first_of("\n;"));
  }
  // "JobState=RUNNING Restarts=1 ..." of a job.
  std::string job(const std::string& number) const {
    return on_login("scontrol show job -o " + number).text;
  }
  std::string output() const { return e2e::read_file(path("job.out")); }

  // The bits of a run are those of one rank.
  void expect_whole(const std::string& name, int steps) {
    if (!fs::exists(root_.path / "whole")) train_whole(steps);
    EXPECT_EQ(weights(name, steps), weights("whole", steps)) << name;
  }

  TemporaryDirectory cluster_;
};

TEST_F(Slurm, TrainsOnTwoAndFourNodesToTheBitsOfOneRank) {
  const std::pair<const char*, const char*> ways[] = {
      {"two", "srun -N2 -n2"},
      {"four", "srun -N4 -n4"},
      {"several", "srun -N2 -n4 --overcommit --mpi=pmi2"},
      {"mixed", "srun -N1 -n1 {0} : -N1 -n2 --overcommit"}};
  for (const auto& [name, way] : ways) {
    const std::string line = words(name, {}, 3);
    const std::string srun = way;
    const std::size_t hole = srun.find("{0}");
    const Said said = on_login(hole == srun.npos
                                   ? srun + " " + line
                                   : srun.substr(0, hole) + line + srun.substr(hole + 3) + " " + line);
    EXPECT_EQ(said.exit_code, 0) << name << ": " << said.text;
    expect_whole(name, 3);
  }
}

TEST_F(Slurm, TrainsByMpiWherePmixGivesTheRanks) {
  const Said said = on_login("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                             "srun --mpi=pmix -N2 -n2 " +
                             words("pmix", {}, 3));
  EXPECT_EQ(said.exit_code, 0) << said.text;
  expect_whole("pmix", 3);
}

TEST_F(Slurm, AJobThatIsPreemptedIsRequeuedAndHasTheSameBits) {
  const std::string number =
      submitted("--requeue -p low -N2 -n2", "exec srun " + words("whole", {}, e2e::kEndless));
  ASSERT_TRUE(took("whole", 3)) << job(number) << output();
  const Said urgent = on_login("srun -p high -N4 -n4 hostname");
  EXPECT_EQ(urgent.exit_code, 0) << urgent.text;
  ASSERT_TRUE(soon([&] { return job(number).find("Restarts=1") != std::string::npos; }))
      << job(number);
  EXPECT_THAT(output(), HasSubstr("the same command goes on from there"));
  // It goes on by itself.
  const std::int64_t saved = records("whole").back().step;
  ASSERT_TRUE(took("whole", saved + 3)) << job(number) << output();
  on_login("scancel " + number);
  ASSERT_TRUE(soon([&] {
    return job(number).find("JobState=CANCELLED") != std::string::npos &&
           job(number).find("EndTime=Unknown") == std::string::npos;
  })) << job(number);
  const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(root_.path / "whole/checkpoints");
  ASSERT_FALSE(steps.empty()) << output();
  const auto preempted = weights("whole", steps.back());
  fs::rename(root_.path / "whole", root_.path / "preempted");
  train_whole(static_cast<int>(steps.back()));
  EXPECT_EQ(preempted, weights("whole", steps.back()));
}

TEST_F(Slurm, ScancelSavesWithinItsGrace) {
  const std::string number =
      submitted("-N2 -n2", "exec srun " + words("cancelled", {}, e2e::kEndless));
  ASSERT_TRUE(took("cancelled", 3)) << job(number) << output();
  on_login("scancel " + number);
  ASSERT_TRUE(soon([&] {
    return output().find("the same command goes on from there") != std::string::npos;
  })) << job(number) << output();
}

TEST_F(Slurm, ASignalBeforeTheTimeLimitSaves) {
  const std::string number =
      submitted("-N2 -n2 --time=1 --signal=USR1@55", "srun " + words("late", {}, e2e::kEndless));
  ASSERT_TRUE(soon([&] {
    return output().find("stopped by SIGUSR1") != std::string::npos;
  })) << job(number) << output();
}

TEST_F(Slurm, AKilledRankEndsTheJobAndTheSameCommandGoesOn) {
  const std::string number =
      submitted("-N4 -n4", "exec srun --kill-on-bad-exit=1 " + words("killed", {}, 40));
  ASSERT_TRUE(took("killed", 21)) << job(number) << output();
  const Said killed = called(fmt::format(
      "{} on {} n3 pkill -9 -f 'atoll train.*{}'", kCluster, cluster_.path.string(), path("killed")));
  (void)killed;
  ASSERT_TRUE(soon([&] {
    return job(number).find("JobState=RUNNING") == std::string::npos;
  })) << job(number);
  const Said again = on_login("srun -N4 -n4 " + words("killed", {}, 40));
  EXPECT_EQ(again.exit_code, 0) << again.text;
  expect_whole("killed", 40);
}

// `atoll launch` in each task: those that are left go on when a node is gone.
TEST_F(Slurm, ALaunchGoesOnWithoutANodeThatIsLost) {
  std::string line = test_program().string();
  for (const std::string& word : launch("elastic", exact({"--slots=1", "--backend=tcp",
                                                          "--min-ranks=1"}, e2e::kEndless))) {
    line += " " + word;
  }
  const std::string number =
      submitted("-N3 -n3 --no-kill --no-requeue", "exec srun --no-kill --kill-on-bad-exit=0 " + line);
  ASSERT_TRUE(took("elastic", 3)) << job(number) << output();
  called(fmt::format("kill -9 $(ip netns pids atoll-{}-n3)",
                     cluster_.path.string().substr(cluster_.path.string().size() - 8)));
  const std::int64_t seen = records("elastic").back().step;
  EXPECT_TRUE(took("elastic", seen + 5)) << job(number) << output();
  on_login("scancel " + number);
}

TEST_F(Slurm, IslandsAreTasksOfAnArray) {
  const std::string coordinator =
      submitted("-w n4 -N1 -n1", "exec srun " + test_program().string() + " coordinator --listen=n4:7400 " +
                                     "--dir=" + path("coordinator"));
  std::string island = words("island-$SLURM_ARRAY_TASK_ID",
                             {"--island.coordinator=n4:7400",
                              "--island.name=island-$SLURM_ARRAY_TASK_ID"}, 4);
  const std::string array = submitted("--array=1-2 -N1 -n1", "exec srun " + island);
  ASSERT_TRUE(soon([&] {
    return fs::exists(root_.path / "island-1/checkpoints/step-00000004") &&
           fs::exists(root_.path / "island-2/checkpoints/step-00000004");
  })) << job(array) << output();
  on_login("scancel " + coordinator);
}

}  // namespace
}  // namespace atl
