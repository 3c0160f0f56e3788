// What a step has in memory beside what `atoll plan` says of it.

#include <nlohmann/json.hpp>

#include "program.h"

namespace atl::e2e {
namespace {

using ::testing::HasSubstr;

// The kjv-demo's model, small enough for the program itself to count, and a wider one.
TEST(Memory, AStepHasThePlanAndTheProgramWithinFivePercent) {
  const std::string recipe = (test_source_dir() / "recipes/kjv-demo.toml").string();
  for (const std::string width : {"256", "512"}) {
    const Finished bench = atoll({"bench", "step", recipe, "--model.hidden_size=" + width,
                                  "--device.threads=2", "--steps=1", "--warmup=1", "--json"});
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
    const auto said = nlohmann::json::parse(bench.out);
    const double planned = said["planned_bytes"];
    const double program = said["program_bytes"];
    const double peak = said["peak_resident_bytes"];
    EXPECT_LT(peak, 1.05 * (planned + program)) << width;
    EXPECT_GT(peak, 0.9 * (planned + program)) << width;

    const Finished plan = atoll({"plan", recipe, "--model.hidden_size=" + width,
                                 "--data.text=" + (test_source_dir() / "README.md").string()});
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_THAT(plan.out, HasSubstr("MiB with the program and its libraries"));
  }
}

}  // namespace
}  // namespace atl::e2e
