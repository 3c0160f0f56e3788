// Passes with and without a GPU: what needs one is skipped, what is said without one is checked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/device/cuda/runtime.h"
#include "atoll/device/gpu_support.h"

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
  if (report.devices.empty()) {
    EXPECT_THAT(report.problem, testing::HasSubstr("NVIDIA driver"));
  } else {
    EXPECT_EQ(gpu_problems().size(), report.devices.size());
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

TEST_F(Cuda, CopiesAndZeroesInOrder) {
  const std::unique_ptr<Device> device = open_device({.kind = DeviceKind::kCuda});
  const std::unique_ptr<Stream> stream = device->open_stream();
  const Buffer first(*device, 4096), second(*device, 4096);
  const Buffer host(*device, 4096, MemoryKind::kHost);
  auto* bytes = static_cast<char*>(host.data());
  EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](char c) { return c == 0; }));
  std::fill_n(bytes, 4096, 7);
  stream->copy(first.data(), bytes, 4096);
  stream->copy(second.data(), first.data(), 4096);
  stream->fill_zero(first.data(), 4096);
  stream->copy(bytes, second.data(), 2048);
  stream->copy(bytes + 2048, first.data(), 2048);
  stream->synchronize();
  EXPECT_EQ(std::count(bytes, bytes + 2048, 7), 2048);
  EXPECT_EQ(std::count(bytes + 2048, bytes + 4096, 0), 2048);
  std::vector<char> again(4096);
  device->copy_now(again.data(), second.data(), again.size());
  EXPECT_EQ(std::count(again.begin(), again.end(), 7), 4096);
}

TEST_F(Cuda, EventsOrderStreamsAndMeasure) {
  const std::unique_ptr<Device> device = open_cuda(0);
  const std::unique_ptr<Stream> one = device->open_stream(), other = device->open_stream();
  const std::unique_ptr<Event> begin = device->make_event(), end = device->make_event();
  EXPECT_TRUE(begin->is_done());
  EXPECT_THROW(end->seconds_since(*begin), Error);
  const Buffer from(*device, 64 << 20), to(*device, 64 << 20);
  begin->record(*one);
  cuda::check(
      cudaMemsetAsync(from.data(), 7, from.bytes(), dynamic_cast<cuda::CudaStream&>(*one).native()),
      "fill");
  end->record(*one);
  other->wait(*end);
  other->copy(to.data(), from.data(), from.bytes());
  other->synchronize();
  EXPECT_TRUE(end->is_done());
  EXPECT_GT(end->seconds_since(*begin), 0);
  std::vector<char> host(to.bytes());
  device->copy_now(host.data(), to.data(), host.size());
  EXPECT_EQ(std::count(host.begin(), host.end(), 7), static_cast<std::ptrdiff_t>(host.size()));
}

TEST_F(Cuda, SynchronizeWaitsForWhatTheStreamWasGiven) {
  const std::unique_ptr<Device> device = open_cuda(0);
  cuda::OpenStreams open;
  cuda::CudaStream stream(*device, 0, open);
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
