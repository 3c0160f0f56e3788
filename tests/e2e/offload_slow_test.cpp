// A model whose training state is four times the memory that a process may use.

#include <dlfcn.h>

#include <cstdlib>

#include "atoll/base/files/read_file.h"
#include "limited_memory.h"
#include "program.h"

namespace atl::e2e {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLimitMib = 288;

class OffloadedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) GTEST_SKIP() << "a sanitizer's memory";
    write_file(directory_.path / "text.txt", read_file(test_source_dir() / "README.md"));
  }

  // 84 million parameters: 1.25 GiB of values, gradients and moments.
  std::vector<std::string> command(const char* what, const std::string& name,
                                   const std::vector<std::string>& more) const {
    std::vector<std::string> words = {what,
                                      (test_source_dir() / "recipes/kjv-demo.toml").string(),
                                      "--run.dir=" + (directory_.path / name).string(),
                                      "--data.text=" + (directory_.path / "text.txt").string(),
                                      "--data.vocab_size=300",
                                      "--model.hidden_size=640",
                                      "--model.intermediate_size=1792",
                                      "--model.num_hidden_layers=18",
                                      "--train.batch_size=2",
                                      "--train.micro_batch=1",
                                      "--train.context=32",
                                      "--train.recompute=full",
                                      "--optim.warmup_steps=1",
                                      "--eval.max_tokens=64",
                                      "--device.threads=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::vector<std::string> in_a_file(std::vector<std::string> more) {
    more.insert(more.end(),
                {"--offload.optimizer=file", "--offload.params=file", "--offload.piece_mib=2"});
    return more;
  }
  std::string weights(const std::string& name, int step) const {
    return read_file(directory_.path / name / "checkpoints" / fmt::format("step-{:08}", step) /
                         "model.safetensors",
                     std::uint64_t{1} << 30);
  }

  TemporaryDirectory directory_;
};

TEST_F(OffloadedRun, TrainsInAQuarterOfItsStateWithTheBitsOfMemory) {
  const Finished plan = atoll(command("plan", "plan", in_a_file({})));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const std::size_t file = plan.out.find("in a file of");
  ASSERT_NE(file, plan.out.npos) << plan.out;
  const std::size_t total = plan.out.find("  total", file);
  EXPECT_GT(std::strtod(plan.out.c_str() + total + 7, nullptr), 4.0 * kLimitMib) << plan.out;

  const LimitedMemory cgroup(kLimitMib << 20);
  Program refused(command("train", "refused", {"--train.steps=2"}));
  if (!cgroup.holds(refused.pid())) GTEST_SKIP() << "cannot make a cgroup; root can";
  const Finished without = refused.wait();
  EXPECT_EQ(without.exit_code, 1) << without.err;
  EXPECT_THAT(without.err, HasSubstr("of memory"));

  // Two steps and a checkpoint, then two more from there.
  for (const char* steps : {"2", "4"}) {
    const std::string of = fmt::format("--train.steps={}", steps);
    Program program(command("train", "limited", in_a_file({of})));
    ASSERT_TRUE(cgroup.holds(program.pid()));
    const Finished limited = program.wait();
    ASSERT_EQ(limited.exit_code, 0) << limited.err;
    const Finished free = atoll(command("train", "free", {of}));
    ASSERT_EQ(free.exit_code, 0) << free.err;
    EXPECT_TRUE(weights("limited", std::atoi(steps)) == weights("free", std::atoi(steps)));
  }
}

}  // namespace
}  // namespace atl::e2e
