// Kubeflow's MPI Operator and the mpi runtime of its Trainer, acted out: workers that run sshd at
// port 2222, and a launcher with a hostfile and a key, whose mpirun starts a rank in each.

#include "cluster_fixture.h"

namespace atl {
namespace {

class MpiOperator : public e2e::Cluster {
 protected:
  void SetUp() override {
    start_nodes("sshd", "/usr/sbin/sshd ssh-keygen ssh mpirun ip",
                "openssh-server, openssh-client, openmpi-bin and iproute2");
  }

  // In the launcher's pod. The operator mounts the key in the home of the user, and the port is the
  // image's: here both are arguments of ssh.
  e2e::Said launched(const std::string& command) const {
    const std::string ssh = fmt::format(
        "-o ConnectionAttempts=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
        "-o LogLevel=ERROR -i {}/ssh/id_rsa -p 2222",
        dir());
    return on_login(
        fmt::format("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                    "OMPI_MCA_orte_default_hostfile={} OMPI_MCA_orte_keep_fqdn_hostnames=true "
                    "OMPI_MCA_orte_set_default_slots=1 'OMPI_MCA_plm_rsh_args={}' {}",
                    path("hostfile"), ssh, command));
  }
};

TEST_F(MpiOperator, LaunchesRanksInItsWorkers) {
  write_file(path("hostfile"), "n1 slots=1\nn2 slots=1\nn3 slots=1\nn4 slots=1\n");
  for (const int workers : {2, 4}) {
    const std::string name = fmt::format("mpi-{}", workers);
    const e2e::Said said = launched(fmt::format("mpirun -n {} {}", workers, words(name, {}, 3)));
    ASSERT_EQ(said.exit_code, 0) << said.text;
    EXPECT_THAT(said.text, ::testing::HasSubstr(fmt::format("{} ranks (mpi)", workers)));
    expect_whole(name, 3);
  }
}

// The ranks run in the workers, not with the launcher.
TEST_F(MpiOperator, EndsWhereAWorkerIsLostAndGoesOnWithTheSameCommand) {
  write_file(path("hostfile"), "n1 slots=1\nn2 slots=1\n");
  const std::string command =
      "mpirun -n 2 " + words("lost", {"--optim.schedule=constant"}, e2e::kEndless);
  e2e::Said said;
  std::thread launcher([&] { said = launched(command + " 2>&1"); });
  EXPECT_TRUE(took("lost", 21));
  std::system(fmt::format("kill -9 $({} pids {} n2)", script(), dir()).c_str());
  launcher.join();
  EXPECT_NE(said.exit_code, 0) << said.text;
  const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(root_.path / "lost/checkpoints");
  ASSERT_FALSE(steps.empty());
  // The operator starts its launcher anew; n1 alone is left.
  write_file(path("hostfile"), "n1 slots=2\n");
  const int last = static_cast<int>(steps.back()) + 5;
  const e2e::Said again =
      launched("mpirun -n 2 " + words("lost", {"--optim.schedule=constant"}, last));
  ASSERT_EQ(again.exit_code, 0) << again.text;
  EXPECT_TRUE(
      std::filesystem::exists(root_.path / "lost/checkpoints" / fmt::format("step-{:08}", last)));
}

}  // namespace
}  // namespace atl
