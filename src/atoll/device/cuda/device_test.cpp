// Passes with and without a GPU: what needs one is skipped, what is said without one is checked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/device/cuda/runtime.h"

namespace atl {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!probe_gpus().problem.empty()) GTEST_SKIP() << probe_gpus().problem;
  }
};

TEST(CudaProbe, NamesDevicesOrSaysWhyThereAreNone) {
  const GpuReport report = probe_gpus();
  EXPECT_TRUE(report.built_in);
  EXPECT_EQ(report.devices.empty(), !report.problem.empty());
  if (report.devices.empty()) {
    EXPECT_THAT(report.problem, testing::StartsWith("no CUDA device: "));
  }
}

TEST(CudaProbe, OpeningAMissingDeviceIsTheUsersErrorAndNamesIt) {
  try {
    open_cuda(1000);
    FAIL() << "opened cuda:1000";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), testing::HasSubstr("cuda:1000"));
  }
}

TEST_F(Cuda, NewMemoryIsZeroAndAligned) {
  const std::unique_ptr<Device> device = open_cuda(0);
  EXPECT_EQ(device->kind(), DeviceKind::kCuda);
  const Buffer buffer(*device, 1 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
  std::vector<char> host(buffer.bytes(), 1);
  cuda::check(cudaMemcpy(host.data(), buffer.data(), host.size(), cudaMemcpyDeviceToHost), "copy");
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](char c) { return c == 0; }));
}

TEST_F(Cuda, MemoryThatDoesNotExistIsAResourceErrorAndTheDeviceLivesOn) {
  const std::unique_ptr<Device> device = open_cuda(0);
  EXPECT_THROW(Buffer(*device, std::size_t{1} << 50), Error);
  const Buffer buffer(*device, 256);
  EXPECT_NE(buffer.data(), nullptr);
}

TEST_F(Cuda, SynchronizeWaitsForWhatTheStreamWasGiven) {
  const std::unique_ptr<Device> device = open_cuda(0);
  cuda::CudaStream stream(*device, 0);
  const Buffer buffer(*device, 4096);
  std::vector<char> host(buffer.bytes(), 0);
  cuda::check(cudaMemsetAsync(buffer.data(), 7, buffer.bytes(), stream.native()), "fill");
  cuda::check(cudaMemcpyAsync(host.data(), buffer.data(), host.size(), cudaMemcpyDeviceToHost,
                              stream.native()),
              "copy");
  stream.synchronize();
  EXPECT_TRUE(std::all_of(host.begin(), host.end(), [](char c) { return c == 7; }));
}

}  // namespace
}  // namespace atl
