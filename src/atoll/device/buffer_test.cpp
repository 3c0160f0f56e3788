#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/device/device.h"

namespace atl {
namespace {

TEST(Buffer, IsZeroedAndAlignedEachTime) {
  const auto device = open_cpu(1);
  for (const std::size_t bytes : {1U, 63U, 64U, 4097U, 1U << 20}) {
    for (int round = 0; round < 2; ++round) {
      const Buffer buffer(*device, bytes);
      EXPECT_EQ(buffer.bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
      const auto* data = static_cast<const unsigned char*>(buffer.data());
      EXPECT_TRUE(std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0; }));
      std::memset(buffer.data(), 0xFF, bytes);  // the next round may get this memory again
    }
  }
}

TEST(Buffer, HasOneOwnerWhenMoved) {
  const auto device = open_cpu(1);
  Buffer first(*device, 100);
  Buffer small(*device, 0);
  void* data = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the point
  EXPECT_EQ(first.bytes(), 0U);
  small = std::move(second);
  EXPECT_EQ(small.data(), data);
  EXPECT_EQ(small.bytes(), 100U);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST(CpuDevice, RefusedMemoryIsAResourceErrorThatSaysHowMuch) {
  const auto device = open_cpu(1);
  try {
    const Buffer buffer(*device, std::size_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kResource);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1.0 EiB of memory"));
  }
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = open_cpu(3);
  EXPECT_EQ(device->kind(), DeviceKind::kCpu);
  EXPECT_EQ(device->threads().num_threads(), 3);
  EXPECT_THAT(device->name(), ::testing::EndsWith(", 3 threads"));
  EXPECT_GT(device->total_memory(), 0U);
  EXPECT_EQ(open_cpu(0)->threads().num_threads(), available_cpus());
  Stream stream(*device);
  EXPECT_EQ(&stream.threads(), &device->threads());
}

}  // namespace
}  // namespace atl
