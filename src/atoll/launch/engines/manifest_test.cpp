#include "atoll/launch/engines/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ManifestRequest request() {
  return {.name = "kjv",
          .recipe = "my run.toml",
          .recipe_text = "[train]\nsteps = 5\n",
          .overrides = {"--data.text=a.txt"},
          .run_dir = "runs/kjv",
          .machines = 2,
          .ranks_each = 4,
          .threads = 8,
          .memory_bytes = (std::size_t{3} << 30) + 1,
          .image = "example.org/atoll:1"};
}

TEST(Manifest, OfSlurmStartsARankWithItsCpusInEachTask) {
  EXPECT_EQ(manifest("slurm", request()),
            "#!/bin/bash\n"
            "#SBATCH --job-name=kjv\n"
            "#SBATCH --nodes=2 --ntasks-per-node=4\n"
            "#SBATCH --cpus-per-task=8\n"
            "#SBATCH --mem=3073M\n"
            "#SBATCH --output=kjv-%j.out --open-mode=append\n"
            "#SBATCH --requeue --signal=TERM@120\n"
            "# 8 ranks. Save this as FILE; start it: sbatch FILE\n"
            "exec srun --cpus-per-task=8 --kill-on-bad-exit=1 atoll train 'my run.toml' "
            "--data.text=a.txt --run.dir=runs/kjv\n");
}

TEST(Manifest, OfSlurmStartsALaunchOnEachNodeWhereRanksMayBeLost) {
  ManifestRequest elastic = request();
  elastic.min_ranks = 4;
  elastic.threads = 0;
  elastic.has_gpus = true;
  elastic.memory_bytes = 0;
  EXPECT_THAT(manifest("slurm", elastic),
              AllOf(HasSubstr("--nodes=2 --ntasks-per-node=1\n#SBATCH --exclusive\n"),
                    HasSubstr("--gpus-per-task=4"), HasSubstr("#SBATCH --no-kill\n"),
                    HasSubstr("srun --cpus-per-task=$((SLURM_CPUS_ON_NODE / 1)) --no-kill "
                              "--kill-on-bad-exit=0 atoll launch 'my run.toml'"),
                    HasSubstr("--slots=4 --min-ranks=4"), Not(HasSubstr("--mem"))));
}

TEST(Manifest, OfSlurmMakesIslandsTasksOfAnArray) {
  ManifestRequest islands = request();
  islands.islands = 3;
  EXPECT_THROW(manifest("slurm", islands), Error);  // where is the coordinator?
  islands.coordinator = "login:7411";
  EXPECT_THAT(
      manifest("slurm", islands),
      AllOf(HasSubstr("#SBATCH --array=1-3\n"), HasSubstr("kjv-%A_%a.out"),
            HasSubstr("on login: atoll coordinator --dir runs/kjv/coordinator --listen login:7411"),
            HasSubstr("--run.dir=runs/kjv/island-$SLURM_ARRAY_TASK_ID --outer.islands=3 "
                      "--island.coordinator=login:7411 --island.name=island-$SLURM")));
}

TEST(Manifest, OfKubernetesHasTheRecipeAndAPodForEachMachine) {
  EXPECT_THAT(
      manifest("kubernetes", request()),
      AllOf(HasSubstr("  run.toml: |\n    [train]\n    steps = 5\n---\n"),
            HasSubstr("  name: kjv-train\n"), HasSubstr("  completions: 2\n"),
            HasSubstr("args: [\"train\", \"/recipe/run.toml\", \"--data.text=a.txt\", \"-n\", "
                      "\"4\", \"--ranks=8\", \"--run.dir=runs/kjv\"]"),
            HasSubstr("requests: {cpu: \"32\", memory: 3073Mi}"), HasSubstr("/dev/shm"),
            Not(HasSubstr("coordinator"))));
}

TEST(Manifest, OfIslandsHasACoordinatorAndAnIdentityForEach) {
  ManifestRequest islands = request();
  islands.islands = 2;
  islands.machines = 1;
  islands.ranks_each = 1;
  for (const auto& [kind, host] : {std::pair("kubernetes", "kjv-coordinator-0.kjv"),
                                   std::pair("jobset", "kjv-coordinator-0-0.kjv")}) {
    EXPECT_THAT(manifest(kind, islands),
                AllOf(HasSubstr(std::string("issue authority coordinator --host ") + host),
                      HasSubstr(std::string("--island.coordinator=") + host + ":7411"),
                      HasSubstr("secretName: kjv-island-2"), Not(HasSubstr("--ranks="))))
        << kind;
  }
  EXPECT_THAT(manifest("jobset", islands), HasSubstr("targetReplicatedJobs: [island-1, island-2]"));
}

// Names are no commands of the shell.
TEST(Manifest, OfSlurmQuotesWhatAShellWouldRun) {
  ManifestRequest odd = request();
  odd.run_dir = "runs/$(reboot)";
  odd.islands = 2;
  odd.coordinator = "login:7411";
  EXPECT_THAT(manifest("slurm", odd),
              HasSubstr("'--run.dir=runs/$(reboot)/island-'$SLURM_ARRAY_TASK_ID --outer"));
  odd.run_dir = "runs\nreboot";
  EXPECT_THROW(manifest("slurm", odd), Error);
}

// A recipe that YAML would not give back as it is.
TEST(Manifest, QuotesARecipeThatYamlWouldChange) {
  ManifestRequest odd = request();
  odd.recipe_text = "\n[train]\r\n\tsteps = 5";
  EXPECT_THAT(manifest("jobset", odd),
              HasSubstr("  run.toml: \"\\n[train]\\r\\n\\tsteps = 5\"\n---\n"));
}

TEST(Manifest, SaysWhatItCannotStart) {
  const auto error_of = [](const char* kind, const ManifestRequest& request) -> std::string {
    try {
      manifest(kind, request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("nomad", request()), HasSubstr("one of slurm, kubernetes, jobset"));
  ManifestRequest elastic = request();
  elastic.min_ranks = 4;
  EXPECT_THAT(error_of("jobset", elastic), HasSubstr("--min-ranks=4 asks for fewer"));
  ManifestRequest bare = request();
  bare.image.clear();
  EXPECT_THAT(error_of("kubernetes", bare), StartsWith("--print=kubernetes: say which image"));
}

TEST(Manifest, MakesNamesOfKubernetes) {
  EXPECT_EQ(job_name("KJV_demo.2"), "kjv-demo-2");
  EXPECT_EQ(job_name("7-up--"), "up");
  EXPECT_EQ(job_name("été"), "t");
  EXPECT_EQ(job_name("---"), "atoll");
  EXPECT_EQ(job_name(std::string(80, 'x')).size(), 40u);
}

}  // namespace
}  // namespace atl::launch
