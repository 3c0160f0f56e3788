#pragma once

// Collectives of tensors in a GPU's memory, beside those of the host.

#include <algorithm>
#include <deque>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/comm/testing/numbers.h"
#include "atoll/comm/world.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/tensor/arena.h"

namespace atl::comm::test {

inline constexpr std::int64_t kSize = 37;  // of a tensor; no multiple of a number of ranks

using Values = std::vector<float>;

/// Tensors of a rank, on its GPU or in host memory.
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

/// What each call makes on this rank, one after the other.
inline std::vector<Values> results(Group& group, Memory& memory) {
  const int rank = group.rank(), size = group.size();
  const std::vector<std::int64_t> parts = group.even_parts(kSize);
  const std::int64_t own =
      parts[static_cast<std::size_t>(rank) + 1] - parts[static_cast<std::size_t>(rank)];
  std::vector<Values> all;
  const auto keep = [&](const Tensor& tensor) { all.push_back(memory.read(tensor)); };

  const Tensor reduced = memory.make(numbers<float>(rank, kSize, 1));
  group.all_reduce(reduced);
  keep(reduced);
  const Tensor largest = memory.make(numbers<float>(rank, kSize, 2));
  group.start_all_reduce(largest, Reduce::kMax).wait();
  keep(largest);

  const Tensor data = memory.make(numbers<float>(rank, kSize, 3));
  const Tensor sum = memory.make(numbers<float>(rank, own, 10));
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

  const Tensor told = memory.make(numbers<float>(rank, kSize, 4));
  group.broadcast(told, size - 1);
  keep(told);
  const Tensor from = memory.make(numbers<float>(rank, 3 * size, 5));
  const Tensor to = memory.make(numbers<float>(rank, 3 * size, 6));
  const std::vector<std::int64_t> even = group.even_parts(3 * size);
  group.all_to_all(from, even, to, even);
  keep(to);
  const Piece sends[] = {{(rank + 1) % size, from}};
  const Piece receives[] = {{(rank + size - 1) % size, to}};
  group.exchange(sends, receives);
  keep(to);
  return all;
}

}  // namespace atl::comm::test
