// Runs that a real Slurm starts: a control daemon and four nodes in networks of their own. They are
// left out where Slurm is not installed, or without root.

#include <fstream>

#include "cluster_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::exact;
using e2e::Finished;
using e2e::Said;
using ::testing::HasSubstr;

class Slurm : public e2e::Cluster {
 protected:
  void SetUp() override {
    start_nodes("slurm", "slurmctld slurmd munged ip", "slurm-wlm, munge and iproute2");
  }

  // A batch script that runs these lines; returns the number of its job.
  std::string submitted(const std::string& options, const std::string& lines) const {
    const std::string script = path("script.sh");
    write_file(script, "#!/bin/bash\n" + lines + "\n");
    const Said said = on_login(fmt::format("sbatch --parsable --output={} --open-mode=append {} {}",
                                           path("job.out"), options, script));
    EXPECT_EQ(said.exit_code, 0) << said.text;
    return said.text.substr(0, said.text.find_first_of("\n;"));
  }
  // "JobState=RUNNING Restarts=1 ..." of a job.
  std::string job(const std::string& number) const {
    return on_login("scontrol show job -o " + number).text;
  }
  // What jobs have printed so far.
  std::string output() const {
    return fs::exists(path("job.out")) ? read_file(path("job.out")) : "";
  }

  // A run that lasts until it is stopped.
  std::string endless(const std::string& name) const {
    return words(name, {"--optim.schedule=constant"}, e2e::kEndless);
  }
  bool is_over(const std::string& number) const {
    const std::string state = job(number);
    return state.find("JobState=RUNNING") == state.npos &&
           state.find("JobState=COMPLETING") == state.npos &&
           state.find("EndTime=Unknown") == state.npos;
  }
  // The last checkpoint of an endless run is that of one rank after so many steps.
  void expect_bits_so_far(const std::string& name) {
    const std::vector<std::int64_t> steps =
        ckpt::checkpoint_steps(root_.path / name / "checkpoints");
    ASSERT_FALSE(steps.empty()) << output();
    const auto so_far = weights(name, steps.back());
    // Under its own name, which is in the record of a run.
    fs::rename(root_.path / name, root_.path / "by-slurm");
    const Finished whole =
        run_ranks(name, exact({"--optim.schedule=constant"}, static_cast<int>(steps.back())));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(so_far, weights(name, steps.back()));
  }
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
    const Said said = on_login(hole == srun.npos ? srun + " " + line
                                                 : srun.substr(0, hole) + line +
                                                       srun.substr(hole + 3) + " " + line);
    EXPECT_EQ(said.exit_code, 0) << name << ": " << said.text;
    expect_whole(name, 3);
  }
}

// The script is submitted as it is printed.
TEST_F(Slurm, TakesTheScriptThatLaunchPrints) {
  std::string line = test_program().string();
  for (const std::string& word :
       launch("printed", exact({"--print=slurm", "--max-ranks=2", "--slots=1"}, 3))) {
    line += " " + word;
  }
  const Said printed = called(fmt::format("{} >'{}'", line, path("printed.sh")));
  ASSERT_EQ(printed.exit_code, 0) << printed.text;
  const Said said = on_login(fmt::format("env PATH={}:\"$PATH\" sbatch --wait --output={} {}",
                                         test_program().parent_path().string(), path("job.out"),
                                         path("printed.sh")));
  EXPECT_EQ(said.exit_code, 0) << said.text << output() << read_file(path("printed.sh"));
  expect_whole("printed", 3);
}

TEST_F(Slurm, TrainsByMpiWherePmixGivesTheRanks) {
  const Said said = on_login(
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "srun --mpi=pmix -N2 -n2 " +
      words("pmix", {}, 3));
  EXPECT_EQ(said.exit_code, 0) << said.text;
  expect_whole("pmix", 3);
}

TEST_F(Slurm, AJobThatIsPreemptedIsRequeuedAndHasTheSameBits) {
  const std::string number = submitted("--requeue -p low -N2 -n2", "exec srun " + endless("low"));
  ASSERT_TRUE(took("low", 3)) << job(number) << output();
  const Said urgent = on_login("srun -p high -N4 -n4 --exclusive hostname");
  EXPECT_EQ(urgent.exit_code, 0) << urgent.text;
  // It waits again when the processes of its first part have ended on each node.
  ASSERT_TRUE(soon([&] {
    const std::string state = job(number);
    return state.find("Restarts=1") != state.npos && state.find("JobState=PENDING") != state.npos;
  })) << job(number);
  EXPECT_THAT(output(), HasSubstr("the same command goes on from there"));
  // It goes on by itself, after two minutes or when it is told to. Not in the second in which its
  // first part was killed: slurmd counts in seconds, and refuses a job that was killed in this one.
  on_login("scontrol update StartTime=now+2 JobId=" + number);
  ASSERT_TRUE(took("low", records("low").back().step + 3)) << job(number) << output();
  on_login("scancel " + number);
  ASSERT_TRUE(soon([&] { return is_over(number); })) << job(number);
  expect_bits_so_far("low");
}

TEST_F(Slurm, ScancelSavesWithinItsGrace) {
  const std::string number =
      submitted("-N2 -n2", "exec srun " + words("cancelled", {}, e2e::kEndless));
  ASSERT_TRUE(took("cancelled", 3)) << job(number) << output();
  on_login("scancel " + number);
  ASSERT_TRUE(soon([&] {
    return output().find("the same command goes on from there") != std::string::npos;
  })) << job(number)
      << output();
}

TEST_F(Slurm, ASignalBeforeTheTimeLimitSaves) {
  const std::string number =
      submitted("-N2 -n2 --time=1 --signal=USR1@55", "srun " + words("late", {}, e2e::kEndless));
  ASSERT_TRUE(soon([&] { return output().find("stopped by SIGUSR1") != std::string::npos; }))
      << job(number) << output();
}

TEST_F(Slurm, AKilledRankEndsTheJobAndTheSameCommandGoesOn) {
  const std::string number =
      submitted("-N4 -n4", "exec srun --kill-on-bad-exit=1 " + endless("killed"));
  ASSERT_TRUE(took("killed", 21)) << job(number) << output();
  std::istringstream there(called(fmt::format("{} pids {} n3", script(), dir())).text);
  int num_killed = 0;
  for (pid_t pid = 0; there >> pid;) {
    if (command_line(pid).starts_with(test_program().string())) {
      ::kill(pid, SIGKILL);
      ++num_killed;
    }
  }
  EXPECT_EQ(num_killed, 1);
  ASSERT_TRUE(soon([&] { return is_over(number); })) << job(number);
  const std::string again = submitted("-N4 -n4", "exec srun " + endless("killed"));
  ASSERT_TRUE(took("killed", records("killed").back().step + 21)) << job(again) << output();
  on_login("scancel " + again);
  ASSERT_TRUE(soon([&] { return is_over(again); })) << job(again);
  expect_bits_so_far("killed");
}

// `atoll launch` in each task: those that are left go on when a node is gone.
TEST_F(Slurm, ALaunchGoesOnWithoutANodeThatIsLost) {
  std::string line = test_program().string();
  for (const std::string& word :
       launch("elastic", exact({"--slots=1", "--backend=tcp", "--min-ranks=1"}, e2e::kEndless))) {
    line += " " + word;
  }
  const std::string number = submitted("-N3 -n3 --no-kill --no-requeue",
                                       "exec srun --no-kill --kill-on-bad-exit=0 " + line);
  ASSERT_TRUE(took("elastic", 3)) << job(number) << output();
  called(fmt::format("kill -9 $({} pids {} n3)", script(), dir()));
  const std::int64_t seen = records("elastic").back().step;
  EXPECT_TRUE(took("elastic", seen + 5)) << job(number) << output();
  on_login("scancel " + number);
}

TEST_F(Slurm, IslandsAreTasksOfAnArray) {
  const std::string atoll = test_program().string();
  std::string certificates = fmt::format("cd {} && {} certs init authority", path(""), atoll);
  for (const char* who : {"coordinator --host n4", "island-1 --host n1 --host n2 --host n3",
                          "island-2 --host n1 --host n2 --host n3"}) {
    certificates += fmt::format(" && {} certs issue authority {}", atoll, who);
  }
  const Said issued = called(certificates);
  ASSERT_EQ(issued.exit_code, 0) << issued.text;
  const std::string identities = path("authority/identities/");
  const std::string coordinator =
      submitted("-w n4 -N1 -n1",
                fmt::format("exec srun {} coordinator --listen=n4:7400 --dir={} --identity={}",
                            atoll, path("coordinator"), identities + "coordinator"));
  const std::string island =
      words("island-$SLURM_ARRAY_TASK_ID",
            {"--island.coordinator=n4:7400", "--outer.islands=2", "--outer.inner_steps=2",
             "--island.name=island-$SLURM_ARRAY_TASK_ID",
             "--island.identity=" + identities + "island-$SLURM_ARRAY_TASK_ID"},
            4);
  const std::string array = submitted("--array=1-2 -N1 -n1", "exec srun " + island);
  ASSERT_TRUE(soon([&] {
    return fs::exists(root_.path / "island-1/checkpoints/step-00000004") &&
           fs::exists(root_.path / "island-2/checkpoints/step-00000004");
  })) << job(array)
      << output();
  on_login("scancel " + coordinator);
}

}  // namespace
}  // namespace atl
