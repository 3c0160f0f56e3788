#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/device/device.h"

namespace atl {
namespace {

TEST(OpenDevice, GivesTheCpuThatWasAskedFor) {
  const auto device = open_device({.threads = 2});
  EXPECT_EQ(device->kind(), DeviceKind::kCpu);
  EXPECT_EQ(device->threads().num_threads(), 2);
  EXPECT_EQ(open_device({})->threads().num_threads(), available_cpus());
}

TEST(OpenDevice, RefusesAGpuThatIsNotThere) {
  EXPECT_THROW(open_device({.kind = DeviceKind::kCuda, .index = 1000}), Error);
}

TEST(CpuStream, CopiesAndZeroesInOrder) {
  const auto device = open_device({.threads = 1});
  const auto stream = device->open_stream();
  EXPECT_EQ(&stream->device(), device.get());
  std::vector<std::int32_t> host(100);
  std::iota(host.begin(), host.end(), 1);
  const std::vector<std::int32_t> before = host;
  const std::size_t bytes = host.size() * sizeof host[0];
  const Buffer first(*device, bytes), second(*device, bytes);
  stream->copy(first.data(), host.data(), bytes);
  stream->copy(second.data(), first.data(), bytes);
  stream->fill_zero(first.data(), bytes / 2);
  std::fill(host.begin(), host.end(), -1);
  stream->copy(host.data(), second.data(), bytes);
  stream->synchronize();
  EXPECT_EQ(host, before);
  stream->copy(host.data(), first.data(), bytes);
  stream->synchronize();
  EXPECT_EQ(std::count(host.begin(), host.end(), 0), 50);
  EXPECT_EQ(host[50], 51);
  stream->copy(nullptr, nullptr, 0);
  stream->fill_zero(nullptr, 0);
}

TEST(CpuDevice, CopiesAtOnce) {
  const auto device = open_device({.threads = 1});
  const Buffer buffer(*device, 4);
  const char text[] = "abc";
  device->copy_now(buffer.data(), text, 4);
  EXPECT_STREQ(static_cast<const char*>(buffer.data()), "abc");
  device->copy_now(nullptr, nullptr, 0);
}

TEST(CpuEvent, IsReachedWhenItIsRecorded) {
  const auto device = open_device({.threads = 1});
  const auto stream = device->open_stream();
  const auto other = device->open_stream();
  const auto first = device->make_event();
  const auto second = device->make_event();
  EXPECT_TRUE(first->is_done());
  EXPECT_THROW(second->seconds_since(*first), Error);
  first->record(*stream);
  EXPECT_THROW(second->seconds_since(*first), Error);
  other->wait(*first);
  second->record(*other);
  second->wait();
  EXPECT_TRUE(second->is_done());
  EXPECT_GE(second->seconds_since(*first), 0.0);
  EXPECT_LE(first->seconds_since(*second), 0.0);
}

TEST(Buffer, OfTheHostKeepsItsKindWhenMoved) {
  const auto device = open_device({.threads = 1});
  Buffer host(*device, 64, MemoryKind::kHost);
  EXPECT_EQ(host.kind(), MemoryKind::kHost);
  EXPECT_EQ(host.device(), device.get());
  Buffer moved(std::move(host));
  EXPECT_EQ(moved.kind(), MemoryKind::kHost);
  Buffer assigned(*device, 64);
  assigned = std::move(moved);
  EXPECT_EQ(assigned.kind(), MemoryKind::kHost);
  EXPECT_EQ(Buffer().device(), nullptr);
}

}  // namespace
}  // namespace atl
