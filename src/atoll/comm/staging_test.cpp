// Collectives of tensors that the host cannot touch.

#include "atoll/comm/staging.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/comm/world.h"
#include "atoll/device/fake_cuda/fake_cuda.h"

namespace atl::comm {
namespace {

constexpr std::int64_t kSize = 37;  // of a tensor; no multiple of a number of ranks

using Values = std::vector<float>;

// Tensors of a rank, on its GPU or in host memory.
class Memory {
 public:
  explicit Memory(Device* device) : device_(device) {}

  Tensor make(const Values& values) {
    const Spec spec = {Dtype::kF32, {std::ssize(values)}};
    if (device_ == nullptr) {
      Values& place = host_.emplace_back(values);
      return {place.data(), spec};
    }
    const Buffer& place = gpu_.emplace_back(*device_, spec.bytes());
    device_->copy_now(place.data(), values.data(), spec.bytes());
    return tensor_in(place, spec);
  }
  Values read(const Tensor& tensor) const {
    Values values(static_cast<std::size_t>(tensor.num_elements()));
    if (device_ == nullptr) {
      std::copy_n(tensor.data<float>(), values.size(), values.begin());
    } else {
      device_->copy_now(values.data(), tensor.raw(), tensor.bytes());
    }
    return values;
  }

 private:
  Device* device_;
  std::deque<Values> host_;
  std::deque<Buffer> gpu_;
};

Values numbers(int rank, std::int64_t count, float first) {
  Values values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first + 100.5F * static_cast<float>(rank));
  return values;
}

// What each call makes on this rank, one after the other.
std::vector<Values> results(Group& group, Memory& memory) {
  const int rank = group.rank(), size = group.size();
  const std::vector<std::int64_t> parts = group.even_parts(kSize);
  const std::int64_t own =
      parts[static_cast<std::size_t>(rank) + 1] - parts[static_cast<std::size_t>(rank)];
  std::vector<Values> all;
  const auto keep = [&](const Tensor& tensor) { all.push_back(memory.read(tensor)); };

  const Tensor reduced = memory.make(numbers(rank, kSize, 1));
  group.all_reduce(reduced);
  keep(reduced);
  const Tensor largest = memory.make(numbers(rank, kSize, 2));
  group.start_all_reduce(largest, Reduce::kMax).wait();
  keep(largest);

  const Tensor data = memory.make(numbers(rank, kSize, 3));
  const Tensor sum = memory.make(numbers(rank, own, 0.25F));
  group.reduce_scatter(data, parts, sum, {.accumulate = true});
  keep(sum);
  keep(data);
  const int last[] = {size - 1};
  group.reduce_scatter(rank == size - 1 ? data : Tensor(), parts, sum, {.contributors = last});
  keep(sum);
  // In place: the sum is a part of what is then gathered.
  const Tensor mine =
      data.rows(parts[static_cast<std::size_t>(rank)], parts[static_cast<std::size_t>(rank) + 1]);
  Work work = group.start_reduce_scatter(data, parts, mine, {});
  work = group.start_all_gather(data, parts);
  work.wait();
  keep(data);

  const Tensor told = memory.make(numbers(rank, kSize, 4));
  group.broadcast(told, size - 1);
  keep(told);
  const Tensor from = memory.make(numbers(rank, 3 * size, 5));
  const Tensor to = memory.make(numbers(rank, 3 * size, 6));
  const std::vector<std::int64_t> even = group.even_parts(3 * size);
  group.all_to_all(from, even, to, even);
  keep(to);
  const Piece sends[] = {{(rank + 1) % size, from}};
  const Piece receives[] = {{(rank + size - 1) % size, to}};
  group.exchange(sends, receives);
  keep(to);
  return all;
}

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
