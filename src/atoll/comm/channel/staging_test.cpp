// Collectives of tensors that the host cannot touch.

#include "atoll/comm/channel/staging.h"

#include <gtest/gtest.h>

#include <vector>

#include "atoll/comm/mesh.h"
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

// As the stages of a pipeline do: whoever waited in a start would wait for ever.
TEST(StagedExchanges, AreStartedBeforeTheOtherRankSends) {
  run_threads(2, {.timeout_s = 60}, [](World& world) {
    Mesh mesh(world, {{.name = "pp", .size = 2, .point_to_point = true}});
    Group& pair = mesh.group("pp");
    const int other = 1 - world.rank();
    fake_cuda::FakeCudaDevice device({.seed = static_cast<std::uint64_t>(world.rank())});
    const Spec spec = {Dtype::kF32, {3}};
    constexpr int kTurns = 3;  // each uses what the last has left
    for (int turn = 0; turn < kTurns; ++turn) {
      const Buffer sent[] = {Buffer(device, spec.bytes()), Buffer(device, spec.bytes())};
      const Buffer got[] = {Buffer(device, spec.bytes()), Buffer(device, spec.bytes())};
      std::vector<Work> receives, sends;
      for (int i = 0; i < 2; ++i) {
        receives.push_back(pair.start_recv(tensor_in(got[i], spec), other));
      }
      for (int i = 0; i < 2; ++i) {
        const auto number = static_cast<float>(10 * turn + 2 * i + world.rank());
        const std::vector<float> values(3, number);
        device.copy_now(sent[i].data(), values.data(), spec.bytes());
        sends.push_back(pair.start_send(tensor_in(sent[i], spec), other));
      }
      for (Work& send : sends) send.wait();
      for (int i = 0; i < 2; ++i) {
        receives[static_cast<std::size_t>(i)].wait();
        std::vector<float> values(3);
        device.copy_now(values.data(), got[i].data(), spec.bytes());
        const auto number = static_cast<float>(10 * turn + 2 * i + other);
        EXPECT_EQ(values, std::vector<float>(3, number)) << turn << " " << i;
      }
    }
  });
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
