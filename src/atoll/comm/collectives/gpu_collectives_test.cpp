// Collectives between GPUs: what NcclLinks carries out, over links that a test plays.

#include "atoll/comm/collectives/gpu_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "atoll/comm/collectives/ordered_reduce.h"
#include "atoll/comm/collectives/reduce.h"
#include "atoll/comm/gpu_links_use.h"
#include "atoll/comm/nccl/links.h"
#include "atoll/comm/testing/gpu_memory.h"
#include "atoll/comm/testing/numbers.h"
#include "atoll/device/choose_device.h"

namespace atl::comm {
namespace {

using test::Memory;
using test::results;
using test::Values;
using ::testing::HasSubstr;

struct Counts {
  int connects = 0;
  int exchanges = 0;
  int own_sums = 0;
  bool operator==(const Counts&) const = default;
};

constexpr std::size_t kManyElements = 1 << 16;

// Bytes between fake GPUs, through the host.
class PlayedLinks final : public GpuLinks {
 public:
  PlayedLinks(Device& device, Transport& base, Counts& counts, bool is_for_one_thread = true)
      : device_(device),
        base_(base),
        counts_(counts),
        is_for_one_thread_(is_for_one_thread),
        stream_(device.open_stream()) {}

  Stream& stream() override { return *stream_; }
  // All meet, as to make a communicator.
  void connect(std::span<const int> members, int self) override {
    ++counts_.connects;
    const std::vector<std::byte> sent(members.size());
    std::vector<std::byte> received(members.size());
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (static_cast<int>(i) == self) continue;
      outgoing.push_back({members[i], &sent[i], 1});
      incoming.push_back({members[i], &received[i], 1});
    }
    base_.exchange(outgoing, incoming);
  }
  void begin() override {}  // copy_now waits for all streams
  void exchange(std::span<const int> members, int /*self*/, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming) override {
    ++counts_.exchanges;
    std::vector<std::vector<std::byte>> memory;
    std::vector<Outgoing> from_host;
    std::vector<Incoming> to_host;
    for (const Outgoing& message : outgoing) {
      memory.emplace_back(message.bytes);
      device_.copy_now(memory.back().data(), message.data, message.bytes);
      from_host.push_back(
          {members[static_cast<std::size_t>(message.to)], memory.back().data(), message.bytes});
    }
    for (const Incoming& message : incoming) {
      memory.emplace_back(message.bytes);
      to_host.push_back(
          {members[static_cast<std::size_t>(message.from)], memory.back().data(), message.bytes});
    }
    base_.exchange(from_host, to_host);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      device_.copy_now(incoming[i].data, to_host[i].data, incoming[i].bytes);
    }
  }
  void finish() override { stream_->synchronize(); }
  void abort() noexcept override {}
  bool is_for_one_thread() const override { return is_for_one_thread_; }

  // Sums of its own go from the last rank to the first.
  void sum_backwards() { sums_backwards_ = true; }
  bool has_own_sums() const override { return sums_backwards_; }
  void all_reduce(std::span<const int> members, const Tensor& data) override {
    reduce_scatter(members, 0, data, std::vector<std::int64_t>{0, data.num_elements()}, data);
  }
  void reduce_scatter(std::span<const int> members, int self, const Tensor& data,
                      std::span<const std::int64_t> parts, const Tensor& result) override {
    ++counts_.own_sums;
    const auto size = static_cast<std::size_t>(data.num_elements());
    Values own(size);
    device_.copy_now(own.data(), data.raw(), data.bytes());
    std::vector<Values> all(members.size(), Values(size));
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (std::size_t i = 0; i < members.size(); ++i) {
      outgoing.push_back({members[i], own.data(), data.bytes()});
      incoming.push_back({members[i], all[i].data(), data.bytes()});
    }
    base_.exchange(outgoing, incoming);
    Values sum = all.back();
    for (std::size_t from = all.size() - 1; from-- > 0;) {
      for (std::size_t i = 0; i < size; ++i) sum[i] += all[from][i];
    }
    const auto part = static_cast<std::size_t>(self);
    device_.copy_now(result.raw(), sum.data() + parts[part], result.bytes());
  }

 private:
  Device& device_;
  Transport& base_;
  Counts& counts_;
  bool is_for_one_thread_;
  bool sums_backwards_ = false;
  std::unique_ptr<Stream> stream_;
};

class GpuRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuRanks, ::testing::Values(1, 2, 3, 4));

TEST_P(GpuRanks, GetTheBitsOfHostMemory) {
  const auto size = static_cast<std::size_t>(GetParam());
  std::vector<std::vector<Values>> expected(size), made(size);
  std::vector<Counts> counts(size);
  run_threads(GetParam(), {.timeout_s = 60}, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Memory host(nullptr);
    expected[rank] = results(world.all(), host);
    fake_cuda::FakeCudaDevice device({.seed = rank});
    Memory gpu(&device);
    {
      const GpuLinksUse use(world, [&](Transport& base) {
        return std::make_unique<PlayedLinks>(device, base, counts[rank]);
      });
      made[rank] = results(world.all(), gpu);
    }
    // Without links again, and through host memory.
    EXPECT_EQ(results(world.all(), gpu), expected[rank]);
  });
  EXPECT_EQ(made, expected);
  // all_reduce is two, and there are two of them.
  for (const Counts& count : counts) {
    EXPECT_EQ(count.exchanges, GetParam() == 1 ? 0 : 11);
    EXPECT_EQ(count.connects, GetParam() == 1 ? 0 : 1);
  }
}

// Runs `body` on ranks with a fake GPU each and links between these.
std::vector<Counts> with_links(
    int ranks, bool is_for_one_thread,
    const std::function<void(World& world, Memory& gpu, fake_cuda::FakeCudaDevice& device)>& body,
    std::int64_t lost_after_on_rank_1 = 0) {
  std::vector<Counts> counts(static_cast<std::size_t>(ranks));
  run_threads(ranks, {.timeout_s = 60}, [&](World& world) {
    fake_cuda::FakeCudaDevice device({.lost_after = world.rank() == 1 ? lost_after_on_rank_1 : 0});
    Memory gpu(&device);
    const GpuLinksUse use(world, [&](Transport& base) {
      return std::make_unique<PlayedLinks>(
          device, base, counts[static_cast<std::size_t>(world.rank())], is_for_one_thread);
    });
    body(world, gpu, device);
  });
  return counts;
}

TEST(GpuLinks, ARankWithNothingToMoveConnectsToo) {
  // All that is gathered is of ranks 0 and 1, and goes to them alone.
  const std::vector<Counts> counts = with_links(3, true, [](World& world, Memory& gpu, auto&) {
    const std::int64_t there = world.rank() < 2 ? 4 : 0;
    const Tensor from = gpu.make(Values(static_cast<std::size_t>(2 * there), 1.0F));
    const Tensor to = gpu.make(Values(static_cast<std::size_t>(2 * there)));
    const std::vector<std::int64_t> parts = {0, there, 2 * there, 2 * there};
    world.all().all_to_all(from, parts, to, parts);
  });
  const Counts moved = {.connects = 1, .exchanges = 1}, unmoved = {.connects = 1, .exchanges = 0};
  EXPECT_EQ(counts, (std::vector<Counts>{moved, moved, unmoved}));
}

// Some ranks alone call it, so no links can be made for it.
TEST(GpuLinks, AnExchangeUsesThoseThatACallOfAllHasMade) {
  const std::vector<Counts> counts = with_links(3, true, [](World& world, Memory& gpu, auto&) {
    const Tensor sent = gpu.make({static_cast<float>(world.rank()) + 5});
    const Tensor received = gpu.make({0});
    const auto exchange = [&] {
      const Piece to[] = {{1, sent}}, from[] = {{0, received}};
      if (world.rank() == 0) world.all().exchange(to, {});
      if (world.rank() == 1) world.all().exchange({}, from);
    };
    exchange();
    EXPECT_EQ(gpu.read(received), Values{world.rank() == 1 ? 5.0F : 0.0F});
    world.all().broadcast(sent, 2);
    exchange();
    EXPECT_EQ(gpu.read(received), Values{world.rank() == 1 ? 7.0F : 0.0F});
  });
  const Counts both = {.connects = 1, .exchanges = 2}, one = {.connects = 1, .exchanges = 1};
  EXPECT_EQ(counts, (std::vector<Counts>{both, both, one}));
}

// A group of one rank on the channel of several: it has no links, and copies through the host.
TEST(GpuLinks, ACallOfOneRankReadsWhatAnEarlierOneHasWritten) {
  std::atomic<bool> is_started = false;
  with_links(2, false, [&](World& world, Memory& gpu, auto&) {
    const Values told(kManyElements, 3.0F);
    const Tensor data = gpu.make(world.rank() == 1 ? told : Values(kManyElements));
    const Tensor result = gpu.make(Values(kManyElements));
    const auto alone = world.group({world.rank()}, "alone", world.channel("all", {0, 1}));
    if (world.rank() == 1) is_started.wait(false);
    Work work = world.all().start_broadcast(data, 1);
    if (world.rank() == 0) {
      is_started = true;
      is_started.notify_one();
    }
    alone->reduce_scatter(data, alone->even_parts(std::ssize(told)), result);
    work.wait();
    EXPECT_EQ(gpu.read(result), told);
  });
}

TEST(GpuLinks, AGpuThatIsLostInACallIsAnErrorOfItsOwnAndEndsTheOthers) {
  std::string lost, other;
  const auto reduce = [&](World& world, Memory& gpu, auto&) {
    const Tensor tensor = gpu.make(Values(8));
    try {
      for (;;) world.all().all_reduce(tensor);
    } catch (const DeviceLostError& error) {
      lost = error.what();
      throw;
    } catch (const PeerError& error) {
      other = error.what();
      throw;
    }
  };
  EXPECT_THROW(with_links(2, true, reduce, /*lost_after_on_rank_1=*/2), Error);
  EXPECT_THAT(lost, HasSubstr("the GPU is lost"));
  EXPECT_THAT(other, HasSubstr("the GPU is lost"));
}

TEST(GpuLinks, ARankThatMakesAnotherCallIsNamed) {
  std::string error;
  try {
    run_threads(2, {.timeout_s = 60}, [&](World& world) {
      fake_cuda::FakeCudaDevice device({});
      Memory gpu(&device);
      Counts counts;
      const GpuLinksUse use(world, [&](Transport& base) {
        return std::make_unique<PlayedLinks>(device, base, counts);
      });
      const Tensor tensor = gpu.make(Values(8));
      if (world.rank() == 0) {
        world.all().all_reduce(tensor);
      } else {
        world.all().broadcast(tensor, 0);
      }
    });
  } catch (const PeerError& thrown) {
    error = thrown.what();
  }
  EXPECT_THAT(error, HasSubstr("all_reduce"));
  EXPECT_THAT(error, HasSubstr("broadcast"));
}

// With 1, 1e8 and -1e8 of ranks 0 to 2 the order of a sum shows: 0 in rank order, 1 backwards.
TEST(GpuLinks, MakeSumsOfTheirOwnWhereTheyHaveThem) {
  run_threads(3, {.timeout_s = 60}, [&](World& world) {
    fake_cuda::FakeCudaDevice device({});
    Memory gpu(&device);
    Counts counts;
    const GpuLinksUse use(world, [&](Transport& base) {
      auto links = std::make_unique<PlayedLinks>(device, base, counts);
      links->sum_backwards();
      return links;
    });
    const float mine[] = {1, 1e8F, -1e8F};
    const auto given = [&] {
      return gpu.make(Values(5, mine[static_cast<std::size_t>(world.rank())]));
    };
    const Tensor data = given();
    world.all().all_reduce(data);
    EXPECT_EQ(gpu.read(data), Values(5, 1.0F));
    EXPECT_EQ(counts, (Counts{.connects = 1, .exchanges = 0, .own_sums = 1}));

    const std::vector<std::int64_t> parts = {0, 3, 3, 5};
    const auto size = static_cast<std::size_t>(parts[static_cast<std::size_t>(world.rank()) + 1] -
                                               parts[static_cast<std::size_t>(world.rank())]);
    const Tensor result = gpu.make(Values(size, 7.0F));
    world.all().reduce_scatter(given(), parts, result);
    EXPECT_EQ(gpu.read(result), Values(size, 1.0F));
    EXPECT_EQ(counts.own_sums, 2);

    // What they do not make is in rank order: sums of some ranks, sums that are added, maxima.
    world.all().reduce_scatter(given(), parts, result, {.accumulate = true});
    EXPECT_EQ(gpu.read(result), Values(size, (1.0F + 1 + 1e8F) - 1e8F));
    const std::vector<int> some = {0, 1};
    world.all().reduce_scatter(world.rank() < 2 ? given() : Tensor(), parts, result,
                               {.contributors = some});
    EXPECT_EQ(gpu.read(result), Values(size, 1 + 1e8F));
    const Tensor largest = given();
    world.all().all_reduce(largest, Reduce::kMax);
    EXPECT_EQ(gpu.read(largest), Values(5, 1e8F));
    EXPECT_EQ(counts.own_sums, 2);
  });
}

// Numbers of every kind, of which a sum in another order has other bits.
template <typename T>
std::vector<T> operands(int part, std::int64_t count) {
  std::vector<T> all = test::numbers<T>(part, count, 7);
  if constexpr (std::is_floating_point_v<T>) {
    all[0] = part == 1 ? std::numeric_limits<T>::quiet_NaN() : all[0];
    all[1] = part == 0 ? static_cast<T>(-0.0) : static_cast<T>(0.0);
    all[2] = std::numeric_limits<T>::infinity();
  }
  if constexpr (std::is_integral_v<T>) all[0] = std::numeric_limits<T>::max();
  return all;
}

template <typename T>
class OrderedReduces : public ::testing::Test {};
using Types = ::testing::Types<float, double, Bf16, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(OrderedReduces, Types);

TYPED_TEST(OrderedReduces, GiveTheBitsOfTheHosts) {
  using T = TypeParam;
  constexpr std::int64_t kCount = 300, kParts = 3;
  for (const Reduce reduce : {Reduce::kSum, Reduce::kMax, Reduce::kMin}) {
    for (const bool accumulate : {false, true}) {
      std::vector<T> parts;
      std::vector<const void*> sources;
      std::vector<T> expected = operands<T>(5, kCount);
      const std::vector<T> before = expected;
      for (int part = 0; part < kParts; ++part) {
        const std::vector<T> one = operands<T>(part, kCount);
        parts.insert(parts.end(), one.begin(), one.end());
      }
      if (accumulate) sources.push_back(expected.data());
      for (std::int64_t part = 0; part < kParts; ++part) {
        sources.push_back(parts.data() + part * kCount);
      }
      void* results[] = {expected.data()};
      reduce_in_order(dtype_of<T>(), reduce, sources, results, kCount);

      fake_cuda::FakeCudaDevice device({.seed = 3});
      const auto stream = device.open_stream();
      const Spec spec = {dtype_of<T>(), {kCount}}, all = {dtype_of<T>(), {kParts, kCount}};
      const Buffer given(device, all.bytes()), made(device, spec.bytes());
      device.copy_now(given.data(), parts.data(), all.bytes());
      device.copy_now(made.data(), before.data(), spec.bytes());
      queue_ordered_reduce(*stream, reduce, tensor_in(given, all), tensor_in(made, spec),
                           accumulate);
      std::vector<T> read(before.size());
      device.copy_now(read.data(), made.data(), spec.bytes());
      EXPECT_EQ(std::memcmp(read.data(), expected.data(), spec.bytes()), 0)
          << static_cast<int>(reduce) << accumulate;
    }
  }
}

TEST(Nccl, IsToldWhereItIsMissing) {
  if (has_nccl()) GTEST_SKIP() << "it is there";
  fake_cuda::FakeCudaDevice device({});
  try {
    nccl_links(device, 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("--comm.gpu=host"));
  }
}

}  // namespace
}  // namespace atl::comm
