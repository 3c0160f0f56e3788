// What a step has in memory, beside what `atoll plan` says of it.

#include <dlfcn.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "program.h"

namespace atl::e2e {
namespace {

constexpr double kMiB = 1 << 20;

// The kjv-demo's model, small enough for the program itself to count, and a wider one.
TEST(Memory, AStepHasWhatThePlanSaysWithTheProgram) {
  if (::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) GTEST_SKIP() << "a sanitizer's own counts";
  const std::string recipe = (test_source_dir() / "recipes/kjv-demo.toml").string();
  for (const std::string width : {"256", "512"}) {
    const Finished plan = atoll({"plan", recipe, "--model.hidden_size=" + width,
                                 "--data.text=" + (test_source_dir() / "README.md").string()});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const std::size_t line = plan.out.find("  in all ");
    ASSERT_NE(line, std::string::npos) << plan.out;
    const double in_all = kMiB * std::strtod(plan.out.c_str() + line + 9, nullptr);

    const Finished bench = atoll({"bench", "step", recipe, "--model.hidden_size=" + width,
                                  "--device.threads=2", "--steps=1", "--warmup=1", "--json"});
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
    const auto said = nlohmann::json::parse(bench.out);
    const double planned = said["planned_bytes"];
    const double program = said["program_bytes"];
    const double peak = said["peak_resident_bytes"];
    EXPECT_NEAR(in_all, planned + program, 4 * kMiB) << width;
    // 5% is what is asked for, and met where it was measured; another CPU's kernels may be larger.
    EXPECT_LT(peak, 1.05 * in_all + 12 * kMiB) << width;
    EXPECT_GT(peak, 0.9 * in_all) << width;
  }
}

}  // namespace
}  // namespace atl::e2e
