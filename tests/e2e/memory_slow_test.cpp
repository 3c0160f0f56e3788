// What a step and a run have in memory, beside what `atoll plan` says of them.

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "limited_memory.h"
#include "program.h"

namespace atl::e2e {
namespace {

constexpr double kMiB = 1 << 20;

bool is_sanitized() {
  return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;
}

// The number that stands behind `words`, or -1.
double number_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  return at == text.npos ? -1 : std::strtod(text.c_str() + at + words.size(), nullptr);
}

// The kjv-demo's model, small enough for the program itself to count, and a wider one.
TEST(Memory, AStepHasWhatThePlanSaysWithTheProgram) {
  if (is_sanitized()) GTEST_SKIP() << "a sanitizer's own counts";
  const std::string recipe = (test_source_dir() / "recipes/kjv-demo.toml").string();
  for (const std::string width : {"256", "512"}) {
    const Finished plan = atoll({"plan", recipe, "--model.hidden_size=" + width,
                                 "--data.text=" + (test_source_dir() / "README.md").string()});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const double in_all = kMiB * number_after(plan.out, "  in all ");
    ASSERT_GT(in_all, 0) << plan.out;

    const Finished bench = atoll({"bench", "step", recipe, "--model.hidden_size=" + width,
                                  "--device.threads=2", "--steps=1", "--warmup=1", "--json"});
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
    const auto said = nlohmann::json::parse(bench.out);
    const double planned = said["planned_bytes"];
    const double program = said["program_bytes"];
    const double peak = said["peak_resident_bytes"];
    EXPECT_NEAR(in_all, planned + program + 10 * kMiB, 4 * kMiB) << width;
    // 5% is what is asked for, and met where it was measured; another CPU's kernels may be larger.
    EXPECT_LT(peak, 1.05 * (planned + program) + 12 * kMiB) << width;
    EXPECT_GT(peak, 0.9 * (planned + program)) << width;
  }
}

// What lies in a file is not held: initial values go through its map a parameter at a time.
TEST(Memory, AStepWithStateInAFileHasWhatThePlanSays) {
  if (is_sanitized()) GTEST_SKIP() << "a sanitizer's own counts";
  const TemporaryDirectory directory;
  const std::string recipe = (test_source_dir() / "recipes/kjv-demo.toml").string();
  for (const bool params : {false, true}) {
    std::vector<std::string> words = {"bench",
                                      "step",
                                      recipe,
                                      "--steps=2",
                                      "--warmup=1",
                                      "--json",
                                      "--device.threads=2",
                                      "--model.hidden_size=768",
                                      "--model.num_hidden_layers=12",
                                      "--train.context=64",
                                      "--offload.optimizer=file",
                                      "--offload.dir=" + directory.path.string()};
    if (params) words.emplace_back("--offload.params=file");
    const Finished bench = atoll(words);
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
    const auto said = nlohmann::json::parse(bench.out);
    const double planned = said["planned_bytes"];
    const double program = said["program_bytes"];
    const double peak = said["peak_resident_bytes"];
    EXPECT_LT(peak, 1.05 * (planned + program) + 24 * kMiB) << params;
    EXPECT_GT(peak, 0.8 * (planned + program)) << params;
  }
}

// With its tokenizer, log, evaluation and checkpoint.
TEST(Memory, ARunHasWhatThePlanSaysInAll) {
  if (is_sanitized()) GTEST_SKIP() << "a sanitizer's own counts";
  const TemporaryDirectory directory;
  const std::vector<std::string> settings = {
      (test_source_dir() / "recipes/kjv-demo.toml").string(),
      "--data.text=" + (test_source_dir() / "docs/configuration.md").string(),
      "--data.vocab_size=1024",
      "--run.dir=" + (directory.path / "run").string(),
      "--train.steps=4",
      "--optim.warmup_steps=1",
      "--eval.every=2"};
  std::vector<std::string> words = settings;
  words.insert(words.begin(), "plan");
  const Finished plan = atoll(words);
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  words.front() = "train";
  const Finished run = atoll(words);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const double planned = number_after(plan.out, "  in all ");
  const double held = number_after(run.err, "(at most ");
  ASSERT_GT(planned, 0) << plan.out;
  ASSERT_GT(held, 0) << run.err;
  EXPECT_NEAR(held, planned, 6) << run.err;  // MiB, and 5% is what is asked for
}

// Without a word it would be killed in the midst of its first step.
TEST(Memory, WhatACgroupForbidsIsAnErrorAndNotTaken) {
  const struct {
    std::int64_t mib;
    std::vector<std::string> ranks;
    std::string words;
  } cases[] = {
      {512, {}, "GiB of memory at least, and 512.0 MiB may be used here"},
      // One of them would fit.
      {2048, {"-n", "2", "--backend=threads"}, "2 ranks on this machine are planned to take 1."},
  };
  for (const auto& [mib, ranks, words] : cases) {
    const LimitedMemory cgroup(mib << 20);
    const TemporaryDirectory directory;
    const std::filesystem::path text = directory.path / "text.txt";
    {
      // Hundreds of blocks, so that the 1% that the recipe holds out are some of them.
      std::ofstream out(text);
      for (int i = 0; i < 20'000; ++i) out << "line " << i << " of the text\n";
    }
    std::vector<std::string> arguments = {"train",
                                          (test_source_dir() / "recipes/gpt2-124m.toml").string(),
                                          "--run.dir=" + (directory.path / "run").string(),
                                          "--data.text=" + text.string(),
                                          "--data.vocab_size=300",
                                          "--train.micro_batch=1",
                                          "--train.batch_size=2",
                                          "--train.context=64",
                                          "--device.threads=1"};
    arguments.insert(arguments.end(), ranks.begin(), ranks.end());
    Program program(arguments);
    if (!cgroup.holds(program.pid())) GTEST_SKIP() << "cannot make a cgroup; root can";
    const Finished finished = program.wait();
    EXPECT_EQ(finished.exit_code, 1) << finished.err;
    EXPECT_THAT(finished.err, ::testing::HasSubstr(words));
  }
}

}  // namespace
}  // namespace atl::e2e
