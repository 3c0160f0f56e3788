#include "atoll/train/ranks/gpu_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "no error";
}

TEST(GpuPlaces, EachRankOfAMachineTakesTheNext) {
  EXPECT_EQ(gpu_index(-1, 0, 1, 4), 0);
  EXPECT_EQ(gpu_index(-1, 3, 4, 4), 3);
  EXPECT_EQ(gpu_index(2, 0, 1, 4), 2) << "as it is set";
  EXPECT_EQ(gpu_index(0, 3, 4, 2), 0) << "each rank may see others";
  EXPECT_EQ(gpu_index(-1, 1, 2, 1), 0) << "the only one that this rank sees";
  EXPECT_EQ(gpu_index(-1, 1, 2, 0), 1) << "whoever opens it says why there is none";
  EXPECT_THAT(refusal([] { gpu_index(-1, 2, 4, 2); }),
              AllOf(HasSubstr("4 ranks"), HasSubstr("sees 2 GPUs"), HasSubstr("device.index=0")));
}

TEST(GpuPlaces, TwoRanksOnOneGpuAreRefused) {
  const auto refused = [](std::vector<std::int64_t> gpus) {
    return refusal([&] { refuse_shared_gpus(gpus); });
  };
  EXPECT_EQ(refused({7, 9, 8}), "no error");
  EXPECT_EQ(refused({0, 0, 0}), "no error") << "CPUs, and GPUs that the host plays";
  EXPECT_THAT(refused({7, 9, 8, 9}), AllOf(HasSubstr("ranks 1 and 3"), HasSubstr("device.index")));
}

}  // namespace
}  // namespace atl::train
