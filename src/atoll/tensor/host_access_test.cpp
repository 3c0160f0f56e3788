// Host access on a CPU, which copies nothing, and on a device whose memory the host cannot touch.

#include "atoll/tensor/host_access.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/tensor/arena.h"

namespace atl {
namespace {

// A device with memory of its own: what it gives out faults when the host touches it, and its bytes
// lie elsewhere.
class FarDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "far"; }
  std::size_t total_memory() const override { return cpu_->total_memory(); }
  ThreadPool& threads() override { return cpu_->threads(); }
  void* allocate(std::size_t bytes) override {
    void* data = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory_[static_cast<std::byte*>(data)].resize(bytes);
    return data;
  }
  void deallocate(void* data, std::size_t bytes) noexcept override {
    memory_.erase(static_cast<std::byte*>(data));
    ::munmap(data, bytes);
  }
  void* allocate_host(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void deallocate_host(void* data, std::size_t bytes) noexcept override {
    cpu_->deallocate(data, bytes);
  }
  void copy_now(void* to, const void* from, std::size_t bytes) override {
    ++num_copies;
    std::memcpy(bytes_at(to), bytes_at(const_cast<void*>(from)), bytes);
  }
  std::unique_ptr<Stream> open_stream() override;

  // Where the bytes of a place on the device lie; any other place is the host's.
  std::byte* bytes_at(void* place) {
    auto* at = static_cast<std::byte*>(place);
    auto after = memory_.upper_bound(at);
    if (after == memory_.begin()) return at;
    --after;
    const std::ptrdiff_t offset = at - after->first;
    return offset < static_cast<std::ptrdiff_t>(after->second.size())
               ? after->second.data() + offset
               : at;
  }

  int num_copies = 0;

 private:
  std::unique_ptr<Device> cpu_ = open_cpu(1);
  std::map<std::byte*, std::vector<std::byte>> memory_;
};

// Copies when it is waited for.
class FarStream final : public Stream {
 public:
  explicit FarStream(FarDevice& device) : Stream(device), device_(device) {}
  void copy(void* to, const void* from, std::size_t bytes) override {
    queue_.push_back([this, to, from, bytes] {
      std::memcpy(device_.bytes_at(to), device_.bytes_at(const_cast<void*>(from)), bytes);
    });
  }
  void synchronize() override {
    for (const auto& work : std::exchange(queue_, {})) work();
  }

 private:
  FarDevice& device_;
  std::vector<std::function<void()>> queue_;
};

std::unique_ptr<Stream> FarDevice::open_stream() {
  return std::make_unique<FarStream>(*this);
}

constexpr std::int64_t kCount = 6;
const Spec kSpec = {Dtype::kF32, {kCount}};

class HostAccess : public testing::Test {
 protected:
  // A tensor of 0, 1, 2, ... on `device`.
  Tensor counted(Device& device) {
    buffers_.emplace_back(device, kSpec.bytes());
    const Tensor tensor = tensor_in(buffers_.back(), kSpec);
    write_on_host<float>(tensor, [](std::span<float> all) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i);
    });
    return tensor;
  }

  std::vector<float> elements(const Tensor& tensor) {
    const HostRead read(tensor);
    return {read.elements<float>().begin(), read.elements<float>().end()};
  }

  std::unique_ptr<Device> cpu_ = open_cpu(1);
  FarDevice far_;
  std::vector<Buffer> buffers_;
};

TEST_F(HostAccess, OnACpuIsTheTensorsOwnMemory) {
  const Tensor tensor = counted(*cpu_);
  EXPECT_TRUE(is_on_host(tensor));
  EXPECT_EQ(tensor.device(), cpu_.get());
  const HostRead read(tensor);
  EXPECT_EQ(read.elements<float>().data(), tensor.data<float>());
  EXPECT_EQ(read.bytes().data(), tensor.raw());
  EXPECT_EQ(read.bytes().size(), tensor.bytes());
  write_on_host<std::byte>(tensor, [&](std::span<std::byte> bytes) {
    EXPECT_EQ(bytes.data(), tensor.raw());
    EXPECT_EQ(bytes.size(), tensor.bytes());
  });
  update_on_host<float>(tensor,
                        [&](std::span<float> all) { EXPECT_EQ(all.data(), tensor.data<float>()); });
}

TEST_F(HostAccess, OfAnotherDtypeIsRefused) {
  const Tensor tensor = counted(*cpu_);
  const HostRead read(tensor);
  EXPECT_THROW(read.elements<double>(), Error);
  EXPECT_THROW(write_on_host<double>(tensor, [](std::span<double>) {}), Error);
}

TEST_F(HostAccess, OnAnotherDeviceGoesThroughACopy) {
  const Tensor tensor = counted(far_);
  EXPECT_FALSE(is_on_host(tensor));
  EXPECT_EQ(far_.num_copies, 1);
  EXPECT_EQ(elements(tensor), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  // Views know their device too.
  EXPECT_EQ(elements(tensor.rows(2, 4)), (std::vector<float>{2, 3}));
  EXPECT_EQ(elements(tensor.reshaped({2, 3}).rows(1, 2)), (std::vector<float>{3, 4, 5}));
  update_on_host<float>(tensor.rows(1, 3), [](std::span<float> some) {
    EXPECT_EQ(some[1], 2);
    some[0] = -1;
  });
  EXPECT_EQ(elements(tensor), (std::vector<float>{0, -1, 2, 3, 4, 5}));
}

TEST_F(HostAccess, CopiesBetweenAllMemories) {
  std::vector<float> memory(kCount);
  const Tensor host(memory.data(), kSpec);
  const Tensor on_cpu = counted(*cpu_);
  const Tensor on_far = counted(far_);
  update_on_host<float>(on_far, [](std::span<float> all) { all[0] = 7; });
  copy_now(on_far, host);
  EXPECT_EQ(memory, (std::vector<float>{7, 1, 2, 3, 4, 5}));
  memory[5] = 8;
  copy_now(host, on_cpu);
  EXPECT_EQ(elements(on_cpu), memory);
  const Tensor other = counted(far_);
  copy_now(on_cpu, other);
  copy_now(other, on_far);
  EXPECT_EQ(elements(on_far), memory);
  copy_now(on_far, on_far);
  EXPECT_THROW(copy_now(on_far, other.rows(0, 2)), Error);
  FarDevice another;
  const Buffer buffer(another, kSpec.bytes());
  EXPECT_THROW(copy_now(tensor_in(buffer, kSpec), on_far), Error);
}

TEST_F(HostAccess, QueuedCopyIsThereWhenTheStreamWasWaitedFor) {
  const Tensor tensor = counted(far_);
  const Buffer buffer(far_, kSpec.bytes(), MemoryKind::kHost);
  const Tensor host = tensor_in(buffer, kSpec);
  EXPECT_TRUE(is_on_host(host));
  const auto stream = far_.open_stream();
  queue_copy(*stream, tensor, host);
  EXPECT_EQ(elements(host), std::vector<float>(kCount));
  stream->synchronize();
  EXPECT_EQ(elements(host), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_THROW(queue_copy(*stream, tensor, host.rows(0, 2)), Error);
  const auto near = cpu_->open_stream();
  EXPECT_THROW(queue_copy(*near, tensor, host), Error);
}

TEST(Arena, TensorsKnowWhoseMemoryTheyAre) {
  FarDevice far;
  MemoryPlan plan;
  const int request = plan.request_forever("x", "test", kSpec.bytes());
  plan.place();
  const Arena arena(far, plan);
  EXPECT_EQ(arena.tensor(request, kSpec).device(), &far);
  const Buffer small(far, 8);
  EXPECT_THROW(tensor_in(small, kSpec), Error);
}

}  // namespace
}  // namespace atl
