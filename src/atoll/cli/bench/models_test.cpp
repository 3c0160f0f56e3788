#include "atoll/cli/bench/models.h"

#include <gtest/gtest.h>

#include "atoll/nn/models/family.h"

namespace atl::cli {

namespace {

TEST(BenchModels, ModelsToMeasureWithHaveTheSizesOfTheirNames) {
  const auto parameters = [](const char* name) {
    return nn::count_parameters(*nn::build_model(bench_model_config(name), {})).total;
  };
  EXPECT_EQ(parameters("gpt2-124m"), 124'439'808);
  EXPECT_NEAR(static_cast<double>(parameters("llama-30m")), 30e6, 1e6);
  EXPECT_NEAR(static_cast<double>(parameters("demo")), 5e6, 5e5);
}

}  // namespace
}  // namespace atl::cli
