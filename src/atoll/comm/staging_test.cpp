// Collectives of tensors that the host cannot touch.

#include "atoll/comm/staging.h"

#include <gtest/gtest.h>

#include <vector>

#include "atoll/comm/testing/gpu_memory.h"

namespace atl::comm {
namespace {

using test::Memory;
using test::results;
using test::Values;

class StagedCollectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StagedCollectives, ::testing::Values(1, 2, 3, 4));

TEST_P(StagedCollectives, MakeOfAGpusTensorsWhatTheyMakeOfTheHosts) {
  const int size = GetParam();
  std::vector<std::vector<Values>> expected(static_cast<std::size_t>(size)), made = expected;
  run_threads(size, {.timeout_s = 60}, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Memory host(nullptr);
    expected[rank] = results(world.all(), host);
    fake_cuda::FakeCudaDevice device({.seed = rank});
    Memory gpu(&device);
    made[rank] = results(world.all(), gpu);
  });
  EXPECT_EQ(made, expected);
}

TEST(Staging, IsForTensorsOfAGpuThatMove) {
  fake_cuda::FakeCudaDevice device({});
  const Buffer memory(device, 16);
  const Spec spec = {Dtype::kF32, {4}};
  float host[4] = {};
  Collective call = {.op = Op::kAllReduce, .members = {0, 1}};
  call.data = Tensor(host, spec);
  EXPECT_FALSE(needs_staging(call));
  call.data = tensor_in(memory, spec);
  EXPECT_TRUE(needs_staging(call));
  call.members = {0};
  EXPECT_FALSE(needs_staging(call)) << "a rank alone leaves it as it is";
}

}  // namespace
}  // namespace atl::comm
