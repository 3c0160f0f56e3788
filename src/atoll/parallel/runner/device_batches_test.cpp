#include "atoll/parallel/runner/device_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {
namespace {

// Five micro-batches in a row, each in the memory of the one before, and larger from the fourth on.
TEST(DeviceBatches, ArriveAsTheyWereThoughTheHostWritesOn) {
  constexpr std::int64_t kFew = 8, kMany = 4096;
  fake_cuda::FakeCudaDevice gpu({});
  const auto stream = gpu.open_stream();
  atl::Run run = {.stream = stream.get()};
  DeviceBatches batches;
  std::vector<std::int32_t> tokens(kMany);
  std::vector<std::vector<std::int32_t>> arrived(5, std::vector<std::int32_t>(kMany));
  for (std::int32_t number = 0; number < 5; ++number) {
    const Spec spec = {Dtype::kI32, {1, number < 3 ? kFew : kMany}};
    std::fill(tokens.begin(), tokens.end(), 10 + number);
    const Batch batch = {.tokens = {tokens.data(), spec}};
    const Batch there = batches.on_device(run, {&batch, 1}, 100)[0];
    queue_copy(*stream, there.tokens, {arrived[static_cast<std::size_t>(number)].data(), spec});
  }
  stream->synchronize();
  for (std::int32_t number = 0; number < 5; ++number) {
    const auto& values = arrived[static_cast<std::size_t>(number)];
    EXPECT_EQ(values.front(), 10 + number);
    EXPECT_EQ(values[kFew - 1], 10 + number);
    EXPECT_EQ(values.back(), number < 3 ? 0 : 10 + number);
  }
}

}  // namespace
}  // namespace atl::parallel
