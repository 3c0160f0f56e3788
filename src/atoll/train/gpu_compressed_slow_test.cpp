// Compressed data parallel on more GPUs that the host plays, in each stage of ZeRO, and from its
// checkpoints.

#include "atoll/train/gpu_compressed_testing.h"

namespace atl::train {
namespace {

// Two ranks train in every way on every change (gpu_compressed_test.cpp). More ranks have more
// owners alone; what a checkpoint must keep is most in these three. The rest is left to ./dev
// nightly.
using ::testing::Values;
using GpuCompressedRanks = GpuCompressed;
INSTANTIATE_TEST_SUITE_P(Ways, GpuCompressedRanks, Values("int4+int4", "powersgd"), way_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuCompressedRanks,
                         Values("int8", "none+int4", "onebit_adam", "zeroone_adam"), way_of);
using GpuCompressedHalves = GpuCompressed;
INSTANTIATE_TEST_SUITE_P(Ways, GpuCompressedHalves, Values("int4+int4", "powersgd", "zeroone_adam"),
                         way_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuCompressedHalves, Values("int8", "none+int4", "onebit_adam"),
                         way_of);

TEST_P(GpuCompressedRanks, FourRanksTrainAsOnTheCpuInAsManyBytes) {
  expect_as_on_cpu(4);
}

TEST_P(GpuCompressedHalves, ThreeAndTwoStepsAreFive) {
  const Settings settings = compressed(GetParam());
  const Ended whole = on_gpu("whole", settings, 2);
  EXPECT_EQ(on_gpu("parts", settings, 2, /*stop_after=*/3).outcome.step, 3);
  const Ended rest = on_gpu("parts", with(settings, {"--device.fake_order=3"}), 2);
  EXPECT_EQ(rest.outcome.step, 5);
  EXPECT_TRUE(rest.values == whole.values);
}

using GpuCompressedStages = GpuRuns;

TEST_F(GpuCompressedStages, HaveTheSameBits) {
  const Settings settings = small({"--train.micro_batch=1", "--dp.bucket_mib=0.01",
                                   "--train.steps=3", "--dp.compress=int4", "--eval.every=0"});
  const Ended expected = on_gpu("zero0", settings, 2);
  for (int zero = 1; zero <= 3; ++zero) {
    const std::string number = std::to_string(zero);
    const Ended ended = on_gpu("zero" + number, with(settings, {"--dp.zero=" + number}), 2);
    EXPECT_TRUE(ended.values == expected.values) << zero;
  }
}

}  // namespace
}  // namespace atl::train
