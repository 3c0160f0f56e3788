#include "atoll/device/fake_cuda/fake_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/cuda/kernel.h"

namespace atl::fake_cuda {
namespace {

using cuda::Global;

// x[i] = x[i] * factor + 1.
struct Step {
  static constexpr const char* kName = "step";
  static constexpr int kMaxThreads = 32;
  Global<std::int32_t> x;
  std::int32_t factor;
  ATOLL_DEVICE void operator()() const {
    const int i = cuda::block_x() * 32 + cuda::thread();
    x.store(i, x.load(i) * factor + 1);
  }
};

void launch(Stream& stream, const Buffer& x, std::int32_t factor) {
  const Step step{{static_cast<std::int32_t*>(x.data()), 64}, factor};
  dynamic_cast<cuda::KernelStream&>(stream).launch(shim_code<Step>(), {.blocks_x = 2}, &step,
                                                   sizeof step);
}

std::vector<std::int32_t> host_of(Device& device, const Buffer& buffer) {
  std::vector<std::int32_t> host(buffer.bytes() / 4);
  device.copy_now(host.data(), buffer.data(), buffer.bytes());
  return host;
}

TEST(FakeCuda, RunsKernelsCopiesAndZeroesInOrder) {
  FakeCudaDevice device({});
  const auto stream = device.open_stream();
  const Buffer x(device, 256), y(device, 256);
  launch(*stream, x, 7);
  launch(*stream, x, 5);
  stream->copy(y.data(), x.data(), 256);
  stream->fill_zero(x.data(), 128);
  EXPECT_EQ(device.totals().size(), 0u) << "work runs when it is waited for";
  EXPECT_EQ(host_of(device, y), std::vector<std::int32_t>(64, 6));
  EXPECT_EQ(host_of(device, x)[31], 0);
  EXPECT_EQ(host_of(device, x)[32], 6);
  EXPECT_EQ(device.totals().at("step").launches, 2);
  EXPECT_EQ(device.totals().at("step").traffic.read, 2u * 256);
}

// As when a checkpoint is read. Copies are long enough to meet.
TEST(FakeCuda, TakesCopiesFromSeveralThreads) {
  FakeCudaDevice device({});
  constexpr std::int64_t kCopies = 64, kBytes = 1 << 19;
  const Buffer buffer(device, kCopies * kBytes);
  ThreadPool threads(4);
  threads.run(kCopies, [&](std::int64_t i) {
    const std::vector<std::byte> part(kBytes, static_cast<std::byte>(i));
    device.copy_now(static_cast<std::byte*>(buffer.data()) + i * kBytes, part.data(), kBytes);
  });
  std::vector<std::byte> host(buffer.bytes());
  device.copy_now(host.data(), buffer.data(), buffer.bytes());
  for (std::int64_t i = 0; i < kCopies; ++i) {
    EXPECT_EQ(host[static_cast<std::size_t>(i * kBytes)], static_cast<std::byte>(i));
  }
}

TEST(FakeCuda, IsLostAfterSoManyKernelsAndStaysSo) {
  FakeCudaDevice device({.lost_after = 2});
  const auto stream = device.open_stream();
  const Buffer x(device, 256);
  launch(*stream, x, 7);
  launch(*stream, x, 5);
  stream->synchronize();
  launch(*stream, x, 3);
  EXPECT_THROW(stream->synchronize(), DeviceLostError);
  EXPECT_THROW(stream->synchronize(), DeviceLostError);
  EXPECT_THROW(host_of(device, x), DeviceLostError);
  EXPECT_THROW(device.allocate(1), DeviceLostError);
}

TEST(FakeCuda, LaunchesWhatItHasCapturedWithTheOperandsOfThen) {
  FakeCudaDevice device({});
  const auto stream = device.open_stream();
  auto& kernels = dynamic_cast<cuda::KernelStream&>(*stream);
  const Buffer x(device, 256), y(device, 256);
  launch(*stream, x, 7);  // 1
  std::int32_t factor = 3;
  kernels.begin_capture();
  launch(*stream, x, factor);
  stream->copy(y.data(), x.data(), 256);
  const auto graph = kernels.end_capture();
  factor = 100;
  EXPECT_EQ(host_of(device, x), std::vector<std::int32_t>(64, 1))
      << "what is captured does not run";
  kernels.launch(*graph);  // 4
  launch(*stream, x, 2);   // 9
  kernels.launch(*graph);  // 28
  launch(*stream, x, 2);   // 57
  EXPECT_EQ(host_of(device, y), std::vector<std::int32_t>(64, 28));
  EXPECT_EQ(host_of(device, x), std::vector<std::int32_t>(64, 57));
  EXPECT_EQ(device.totals().at("step").launches, 5);
}

// As CUDA refuses these.
TEST(FakeCuda, WhileItCapturesNobodyWaitsAndNoMemoryIsTaken) {
  FakeCudaDevice device({});
  const auto stream = device.open_stream(), other = device.open_stream();
  auto& kernels = dynamic_cast<cuda::KernelStream&>(*stream);
  const auto event = device.make_event(), elsewhere = device.make_event();
  const Buffer x(device, 256);
  elsewhere->record(*other);
  kernels.begin_capture();
  launch(*stream, x, 7);
  EXPECT_THROW(kernels.begin_capture(), Error);
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_THROW(event->record(*stream), Error);
  EXPECT_THROW(stream->wait(*elsewhere), Error);
  EXPECT_THROW(elsewhere->wait(), Error);
  EXPECT_THROW(host_of(device, x), Error);
  EXPECT_THROW(device.allocate(1), Error);
  EXPECT_THROW(device.allocate_host(1), Error);
  EXPECT_THROW(elsewhere->is_done(), Error);
  kernels.abandon_capture();
  EXPECT_THROW(kernels.end_capture(), Error);
  EXPECT_EQ(host_of(device, x), std::vector<std::int32_t>(64, 0)) << "it was abandoned";
}

TEST(ChosenDevice, IsWhatItsNameSays) {
  EXPECT_EQ(open_chosen({.choice = device_choice_named("cpu"), .threads = 1})->kind(),
            DeviceKind::kCpu);
  const auto fake = open_chosen(
      {.choice = device_choice_named("fake_cuda"), .threads = 2, .fake = {.memory = 12345678}});
  EXPECT_EQ(fake->kind(), DeviceKind::kCuda);
  EXPECT_EQ(fake->total_memory(), 12345678u);
  EXPECT_EQ(fake->threads().num_threads(), 2);
  EXPECT_THROW(device_choice_named("gpu"), Error);
  const GpuReport gpus = probe_gpus();
  const auto chosen = open_chosen({.choice = device_choice_named("auto"), .threads = 1});
  EXPECT_EQ(chosen->kind(), gpus.problem.empty() ? DeviceKind::kCuda : DeviceKind::kCpu);
}

TEST(FakeCudaDeathTest, AHostThatTouchesItsMemoryDiesAndIsTold) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        FakeCudaDevice device({});
        const Buffer x(device, 256);
        *static_cast<volatile char*>(x.data()) = 1;
      },
      "host code touched memory of the fake GPU");
}

// Two streams that work on the same numbers, with an event between them or without.
std::vector<std::int32_t> two_streams(std::uint64_t seed, bool waits) {
  FakeCudaDevice device({.seed = seed});
  const auto one = device.open_stream(), other = device.open_stream();
  const auto event = device.make_event();
  const Buffer x(device, 256);
  launch(*one, x, 7);
  launch(*one, x, 3);
  event->record(*one);
  if (waits) other->wait(*event);
  launch(*other, x, 5);
  other->synchronize();
  one->synchronize();
  return host_of(device, x);
}

TEST(FakeCuda, StreamsThatWaitForEachOtherGiveTheSameInEveryOrder) {
  std::set<std::vector<std::int32_t>> with, without;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    with.insert(two_streams(seed, true));
    without.insert(two_streams(seed, false));
  }
  EXPECT_THAT(with, testing::ElementsAre(std::vector<std::int32_t>(64, 21)));
  EXPECT_GT(without.size(), 1u) << "a missing wait must show";
}

TEST(FakeCuda, TellsOfWhatAKernelDidWrongWhenItIsWaitedFor) {
  FakeCudaDevice device({});
  const auto stream = device.open_stream();
  const Buffer x(device, 256);
  const Step step{{static_cast<std::int32_t*>(x.data()), 63}, 1};
  dynamic_cast<cuda::KernelStream&>(*stream).launch(shim_code<Step>(), {.blocks_x = 2}, &step,
                                                    sizeof step);
  EXPECT_THROW(stream->synchronize(), Error);
}

TEST(FakeCuda, EventsAreReachedWhenTheirStreamComesToThem) {
  FakeCudaDevice device({});
  const auto stream = device.open_stream(), other = device.open_stream();
  const auto begin = device.make_event(), end = device.make_event();
  EXPECT_TRUE(begin->is_done());
  EXPECT_THROW(end->seconds_since(*begin), Error);
  const Buffer x(device, 256);
  begin->record(*stream);
  launch(*stream, x, 2);
  end->record(*stream);
  EXPECT_FALSE(end->is_done());
  end->wait();
  EXPECT_TRUE(begin->is_done());
  EXPECT_GE(end->seconds_since(*begin), 0);
}

TEST(FakeCuda, RefusesMoreMemoryThanItHas) {
  FakeCudaDevice device({.total_memory = 1 << 20});
  const Buffer x(device, 1 << 19);
  EXPECT_THROW(Buffer(device, 1 << 20), Error);
  EXPECT_EQ(host_of(device, x), std::vector<std::int32_t>(1 << 17, 0));
}

}  // namespace
}  // namespace atl::fake_cuda
