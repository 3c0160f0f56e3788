#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <thread>

#include "atoll/comm/collectives/reduce.h"
#include "atoll/comm/mesh.h"
#include "atoll/comm/testing/numbers.h"
#include "atoll/comm/world.h"

namespace atl::comm {
namespace {

using test::view;
using testing::HasSubstr;

template <typename T>
std::vector<T> reduce(Reduce how, std::vector<std::vector<T>> sources) {
  std::vector<const void*> from;
  for (auto& source : sources) from.push_back(source.data());
  std::vector<T> result(sources[0].size());
  void* to = result.data();
  reduce_in_order(dtype_of<T>(), how, from, {&to, 1}, static_cast<std::int64_t>(result.size()));
  return result;
}

TEST(Reduction, OfEveryLengthAndNumberIsTheSerialChain) {
  for (std::int64_t n = 1; n < 70; ++n) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::vector<std::vector<Bf16>> narrow;
      std::vector<std::vector<float>> wide;
      std::vector<int> all;
      for (int rank = 0; rank < ranks; ++rank) {
        narrow.push_back(test::numbers<Bf16>(rank, n, 1));
        wide.push_back(test::numbers<float>(rank, n, 1));
        all.push_back(rank);
      }
      EXPECT_TRUE(test::same_bits(reduce(Reduce::kSum, narrow),
                                  test::reduced<Bf16>(all, 0, n, 1, Reduce::kSum)));
      EXPECT_TRUE(test::same_bits(reduce(Reduce::kMin, wide),
                                  test::reduced<float>(all, 0, n, 1, Reduce::kMin)));
    }
  }
}

TEST(Reduction, MayWriteToItsSources) {
  constexpr std::int64_t kCount = 5000;
  std::vector<std::vector<float>> data;
  for (int rank = 0; rank < 3; ++rank) data.push_back(test::numbers<float>(rank, kCount, 9));
  const std::vector<const void*> from{data[0].data(), data[1].data(), data[2].data()};
  const std::vector<void*> to{data[0].data(), data[1].data(), data[2].data()};
  reduce_in_order(Dtype::kF32, Reduce::kSum, from, to, kCount);
  const auto expected = test::reduced<float>({0, 1, 2}, 0, kCount, 9, Reduce::kSum);
  for (const auto& values : data) EXPECT_TRUE(test::same_bits(values, expected));
}

TEST(Reduction, OfBf16IsRoundedOnce) {
  // 256 + 1 + 1 = 258; in bf16 256 + 1 is 256 again.
  const std::vector<Bf16> big(3, to_bf16(256)), one(3, to_bf16(1));
  for (const Bf16 sum : reduce<Bf16>(Reduce::kSum, {big, one, one})) EXPECT_EQ(to_f32(sum), 258);
}

TEST(Reduction, KeepsTheFirstOfSeveralNaNs) {
  const auto nan = [](std::uint32_t payload) {
    return std::vector<float>(5, std::bit_cast<float>(0x7fc00000 | payload));
  };
  const std::vector<float> one(5, 1), infinite(5, std::numeric_limits<float>::infinity());
  for (const Reduce how : {Reduce::kMax, Reduce::kMin}) {
    for (const float value : reduce<float>(how, {one, nan(1), infinite, nan(2), one})) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0x7fc00001U);
    }
  }
}

TEST(Reduction, OfIntegersWraps) {
  const std::vector<std::int32_t> most(3, std::numeric_limits<std::int32_t>::max()), one(3, 1);
  for (const std::int32_t sum : reduce<std::int32_t>(Reduce::kSum, {most, one})) {
    EXPECT_EQ(sum, std::numeric_limits<std::int32_t>::min());
  }
}

TEST(Group, SharesEvenly) {
  run_threads(4, {}, [](World& world) {
    EXPECT_EQ(world.all().even_parts(10), (std::vector<std::int64_t>{0, 3, 6, 8, 10}));
    EXPECT_EQ(world.all().even_parts(10, 4), (std::vector<std::int64_t>{0, 4, 8, 10, 10}));
    EXPECT_EQ(world.all().even_parts(0), (std::vector<std::int64_t>{0, 0, 0, 0, 0}));
  });
}

TEST(Group, OfOneDoesItsWorkAtOnce) {
  const std::unique_ptr<World> world = open_self();
  std::vector<float> data{1, 2, 3}, result{10, 20, 30};
  const std::vector<std::int64_t> parts{0, 3};
  Group::ReduceScatter how;
  how.accumulate = true;
  Work work = world->all().start_reduce_scatter(view(data), parts, view(result), how);
  EXPECT_TRUE(work.done());
  EXPECT_EQ(result, (std::vector<float>{11, 22, 33}));
  world->all().reduce_scatter(view(data), parts, view(result));
  EXPECT_EQ(result, data);
  EXPECT_EQ(world->all().traffic().sent, 0u);
  EXPECT_TRUE(world->recorder().calls().empty());
  EXPECT_EQ(world->backend(), "self");
}

// In a larger world it waits its turn: what it copies may still be in the making.
TEST(Group, OfOneKeepsItsPlaceInTheQueue) {
  run_threads(2, {}, [](World& world) {
    const auto own = world.group({world.rank()}, "own");
    constexpr std::int64_t kCount = 200'000;
    std::vector<float> data(kCount, 1), result(kCount);
    const std::vector<std::int64_t> parts{0, kCount};
    Work sum = world.all().start_all_reduce(view(data));
    Work copy = own->start_reduce_scatter(view(data), parts, view(result), {});
    copy.wait();
    EXPECT_EQ(std::count(result.begin(), result.end(), 2.0F), kCount);
  });
}

TEST(Group, HasItsMakerAmongItsMembers) {
  run_threads(2, {}, [](World& world) {
    EXPECT_THROW(world.group({1 - world.rank()}, "other"), Error);
    EXPECT_THROW(world.group({1, 0}, "descending"), Error);
    EXPECT_THROW(world.group({0, 1, 2}, "large"), Error);
  });
}

TEST(Mesh, RefusesAxesThatDoNotMakeTheWorld) {
  run_threads(3, {}, [](World& world) {
    try {
      const Mesh mesh(world, {{"dp", 2}, {"tp", 2}});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), HasSubstr("dp=2 x tp=2"));
      EXPECT_THAT(error.what(), HasSubstr("3 ranks"));
    }
    EXPECT_THROW(Mesh(world, {{"dp", 3}, {"tp", 0}}), Error);
  });
}

TEST(Mesh, LaysTheLastAxisOutFastest) {
  run_threads(4, {}, [](World& world) {
    Mesh mesh(world, {{"dp", 2}, {"pp", 1}, {"tp", 2}});
    EXPECT_EQ(mesh.coordinate("tp"), world.rank() % 2);
    EXPECT_EQ(mesh.coordinate("dp"), world.rank() / 2);
    EXPECT_EQ(mesh.group("pp").size(), 1);
    const int first = world.rank() % 2;
    EXPECT_EQ(mesh.group("dp").members(), (std::vector<int>{first, first + 2}));
    EXPECT_THROW(mesh.group("cp"), Error);
  });
}

TEST(Recorder, KeepsTheLastCallsWithTheirTimes) {
  run_threads(2, {}, [](World& world) {
    std::vector<float> data(9);
    for (std::size_t i = 0; i < Recorder::kKept + 10; ++i) world.all().all_reduce(view(data));
    Work work = world.all().start_all_reduce(view(data));
    work.wait();
    const std::vector<RecordedCall> calls = world.recorder().calls();
    ASSERT_EQ(calls.size(), Recorder::kKept);
    EXPECT_EQ(calls.front().sequence, 12u);
    EXPECT_EQ(calls.back().sequence, Recorder::kKept + 11);
    for (const RecordedCall& call : calls) {
      EXPECT_EQ(call.state, RecordedCall::State::kDone);
      EXPECT_EQ(call.spec, (Spec{Dtype::kF32, {9}}));
      EXPECT_LE(call.queued, call.started);
      EXPECT_LE(call.started, call.ended);
    }
    EXPECT_GT(world.recorder().busy_seconds(), 0);
    EXPECT_THAT(world.recorder().describe(2),
                HasSubstr("all_reduce #267 of world, f32 (9), at comm_test.cpp:"));
    EXPECT_THAT(world.recorder().describe(2), HasSubstr("done in "));
  });
}

TEST(World, AgreesAboutWorkThatTakesLongerThanTheTimeout) {
  for (const int slow : {1}) {
    run_threads(3, {.timeout_s = 2}, [&](World& world) {
      // The slow rank has nothing to wait for: it works.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3000);
      world.agree([&] {
        while (world.rank() == slow && std::chrono::steady_clock::now() < end) {
          std::this_thread::yield();
        }
      });
      world.all().barrier();
    });
  }
}

TEST(World, OfNoRanksIsRefused) {
  EXPECT_THROW(run_threads(0, {}, [](World&) {}), Error);
}

}  // namespace
}  // namespace atl::comm
