#include "atoll/device/gpu_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GpuSupport, OfADriverThatServesTheRuntimeHasNoProblem) {
  EXPECT_THAT(driver_problem({.driver = 13000, .runtime = 13000, .num_gpus = 1}), IsEmpty());
  EXPECT_THAT(driver_problem({.driver = 13020, .runtime = 13000, .num_gpus = 8}), IsEmpty());
  // Minor versions of one CUDA go together.
  EXPECT_THAT(driver_problem({.driver = 13000, .runtime = 13010, .num_gpus = 1}), IsEmpty());
  EXPECT_THAT(driver_problem({.driver = 14000, .runtime = 13000, .num_gpus = 1}), IsEmpty());
}

TEST(GpuSupport, SaysWhatToDoWithoutADriver) {
  EXPECT_THAT(driver_problem({.driver = 0, .runtime = 13000, .status = "insufficient driver"}),
              AllOf(HasSubstr("no NVIDIA driver is loaded"), HasSubstr("--gpus all")));
}

TEST(GpuSupport, SaysWhichDriverAnOldOneIs) {
  EXPECT_THAT(driver_problem({.driver = 12040, .runtime = 13000, .status = "insufficient driver"}),
              AllOf(HasSubstr("too old: it serves CUDA 12.4"), HasSubstr("built with CUDA 13.0"),
                    HasSubstr("build atoll with CUDA 12")));
}

TEST(GpuSupport, SaysWhatTheRuntimeSays) {
  EXPECT_THAT(driver_problem({.driver = 13000, .runtime = 13000, .status = "system not ready"}),
              AllOf(HasSubstr("system not ready"), HasSubstr("nvidia-smi")));
  EXPECT_THAT(driver_problem({.driver = 13000, .runtime = 13000}),
              AllOf(HasSubstr("sees no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(GpuSupport, NumbersOfEightBitsAreForGpusThatHaveThem) {
  for (const auto& [major, minor] : {std::pair{8, 9}, {9, 0}, {10, 0}, {12, 0}})
    EXPECT_THAT(fp8_problem(major, minor, false), IsEmpty());
  EXPECT_THAT(fp8_problem(9, 0, true), IsEmpty());
  EXPECT_THAT(fp8_problem(8, 0, false),
              AllOf(HasSubstr("compute capability 8.0"), HasSubstr("from 8.9 on"),
                    HasSubstr("--train.fp8=off")));
  EXPECT_THAT(fp8_problem(8, 6, true), HasSubstr("--train.fp8=off"));
  EXPECT_THAT(fp8_problem(10, 0, true),
              AllOf(HasSubstr("on 9.0 alone"), HasSubstr("--train.fp8=tensor")));
}

TEST(GpuSupport, BeginsWithAmpere) {
  EXPECT_THAT(gpu_problem("A100", 8, 0), IsEmpty());
  EXPECT_THAT(gpu_problem("RTX 5090", 12, 0), IsEmpty());
  EXPECT_THAT(gpu_problem("Tesla T4", 7, 5),
              AllOf(HasSubstr("Tesla T4 has compute capability 7.5"), HasSubstr("8.0 (Ampere)"),
                    HasSubstr("--device.kind=cpu")));
}

}  // namespace
}  // namespace atl
