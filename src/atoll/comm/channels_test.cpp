// Several channels of a world, and what a call allocates, over the backends of one process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "atoll/comm/testing/channels.h"
#include "atoll/comm/testing/worlds.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// Counts what this program takes from the heap through C++. Not inlined: the compiler would take
// new and free for a pair that does not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace atl::comm {
namespace {

using test::Backend;
using testing::HasSubstr;

struct Case {
  Backend backend;
  int size;
};

class Channels : public testing::TestWithParam<Case> {
 protected:
  void run(const std::function<void(World&)>& body) {
    EXPECT_NO_THROW(test::run(GetParam().backend, GetParam().size, {.timeout_s = 60}, body));
  }
};

TEST_P(Channels, DoNotWaitForEachOther) {
  run(test::check_channels);
}

TEST_P(Channels, AllocateNothingAfterTheFirstCalls) {
  run([](World& world) { test::check_no_allocations(world, [] { return allocations.load(); }); });
}

TEST_P(Channels, EndTogether) {
  const auto errors = test::errors_of(GetParam().backend, GetParam().size, {.timeout_s = 60},
                                      test::fail_on_one_channel);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(" of tp, f32 (10)"));
}

// No channel of rank 0 fails by itself: it learns of the failure from the others.
TEST_P(Channels, EndOnRanksThatHaveNotTheOneThatFails) {
  const int size = GetParam().size;
  if (size < 3) GTEST_SKIP() << "all ranks have it";
  const auto errors =
      test::errors_of(GetParam().backend, size, {.timeout_s = 60}, [&](World& world) {
        std::vector<int> members = world.all().members();
        members = world.rank() == 0 ? std::vector<int>{0}
                                    : std::vector<int>(members.begin() + 1, members.end());
        test::all_on(world, "dp")->barrier();
        const auto some = world.group(members, "some", world.channel("some", members));
        std::vector<float> bucket(100), data(10);
        if (test::is_last(world)) return some->broadcast(test::view(data), 0);
        Work reduction = world.all().start_all_reduce(test::view(bucket));
        if (world.rank() > 0) some->all_reduce(test::view(data));
        reduction.wait();
      });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(" of some, f32 (10)"));
}

// Its world keeps the error of whichever channel comes first, so each must say what happened.
TEST(Channel, OfARankThatFailedElsewhereSaysWhy) {
  ThreadChannel world(2, 60);
  ThreadsTransport first(world, 0);
  const auto other = first.open_channel(1, std::vector<int>{0, 1});
  first.abort("broadcast of tp");
  float value = 0;
  const Incoming from_the_other{1, &value, sizeof value};
  try {
    other->exchange({}, {&from_the_other, 1});
    ADD_FAILURE() << "nobody sent it";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("this rank has ended with an error: broadcast of tp"));
  }
}

TEST(Channel, OfOneAxisIsThatOfTheWorld) {
  run_threads(2, {}, [](World& world) {
    const Mesh mesh(world, {{"replicate", 1, "dp"}, {"shard", 2, "dp"}, {"tp", 1}});
    std::vector<float> data(100'000, 1);
    Work sum = world.all().start_all_reduce(test::view(data));
    Mesh again(world, {{"shard", 2, "dp"}});
    again.group("shard").barrier();
    EXPECT_TRUE(sum.done());
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Channels,
                         testing::Values(Case{Backend::kThreads, 2}, Case{Backend::kThreads, 3},
                                         Case{Backend::kThreads, 4}, Case{Backend::kMessages, 2},
                                         Case{Backend::kMessages, 3}, Case{Backend::kMessages, 4}),
                         [](const auto& info) {
                           return test::name_of(info.param.backend) +
                                  std::to_string(info.param.size);
                         });

}  // namespace
}  // namespace atl::comm
