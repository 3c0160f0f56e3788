// Every backend that lives in one process, through the suite that all share.

#include <gtest/gtest.h>

#include "atoll/comm/testing/channels.h"
#include "atoll/comm/testing/suite.h"
#include "atoll/comm/testing/worlds.h"

namespace atl::comm {
namespace {

struct Case {
  test::Backend backend;
  int size;
};

class Collectives : public testing::TestWithParam<Case> {};

TEST_P(Collectives, AreBitwiseTheSerialChain) {
  WorldOptions options;
  options.timeout_s = 60;
  EXPECT_NO_THROW(test::run(GetParam().backend, GetParam().size, options, test::check_collectives));
}

std::vector<Case> cases() {
  std::vector<Case> all{{test::Backend::kSelf, 1}};
  for (const int size : {2, 3, 4}) all.push_back({test::Backend::kThreads, size});
  for (const int size : {2, 3, 4}) all.push_back({test::Backend::kMessages, size});
  return all;
}

/// Rings of ranks and of hosts. The last host has fewer ranks where they do not divide.
struct RingCase {
  Algorithm algorithm;
  int size;
  int ranks_a_host;
};

class Rings : public testing::TestWithParam<RingCase> {
 protected:
  static void run(const std::function<void(World&)>& body) {
    const WorldOptions options{
        .timeout_s = 60, .local_ranks = GetParam().ranks_a_host, .algorithm = GetParam().algorithm};
    EXPECT_NO_THROW(test::run(test::Backend::kMessages, GetParam().size, options, body));
  }
};

TEST_P(Rings, AreBitwiseTheSerialChain) {
  run(test::check_collectives);
}

TEST_P(Rings, AreBitwiseTheSerialChainInManyPieces) {
  run([](World& world) {
    test::check_all_reduce<float>(world.all(), 300'007, 1, Reduce::kSum);
    test::check_all_reduce<Bf16>(world.all(), 300'007, 2, Reduce::kMax);
    for (const auto& parts : test::ways_to_cut(world.all(), 100'003)) {
      for (const bool accumulate : {false, true}) {
        test::check_reduce_scatter<Bf16>(world.all(), parts, 3, Reduce::kSum, accumulate,
                                         test::all_of(world.all()));
      }
      test::check_all_gather<double>(world.all(), parts, 4);
    }
    test::check_broadcast<std::int32_t>(world.all(), 50'001, 5);
  });
}

TEST_P(Rings, KeepChannelsApart) {
  run(test::check_channels);
}

/// A little of everything, on more ranks than this machine has cores.
void check_some(World& world) {
  Group& all = world.all();
  test::check_all_reduce<Bf16>(all, 10'007, 1, Reduce::kSum);
  test::check_all_reduce<std::int64_t>(all, 5, 2, Reduce::kMin);
  const std::vector<std::int64_t> parts = all.even_parts(9'001);
  test::check_reduce_scatter<float>(all, parts, 3, Reduce::kSum, true, {1, all.size() - 2});
  test::check_reduce_scatter<double>(all, parts, 4, Reduce::kSum, false, test::all_of(all));
  test::check_all_gather<float>(all, parts, 5);
  test::check_broadcast<float>(all, 333, 6);
  all.barrier();
}

TEST(ManyRanks, SumInRankOrderRoundRings) {
  for (const int size : {8, 13, 16}) {
    for (const int ranks_a_host : {1, 4}) {
      const WorldOptions options{
          .timeout_s = 60,
          .local_ranks = ranks_a_host,
          .algorithm = ranks_a_host == 1 ? Algorithm::kRing : Algorithm::kHierarchical};
      EXPECT_NO_THROW(test::run(test::Backend::kMessages, size, options, check_some))
          << size << " ranks, " << ranks_a_host << " a host";
    }
  }
}

// A rank compares its call with its neighbours' only; the others hear of the mistake from them.
TEST_P(Rings, EndTogetherAfterAMistake) {
  const WorldOptions options{
      .timeout_s = 60, .local_ranks = GetParam().ranks_a_host, .algorithm = GetParam().algorithm};
  const auto errors = test::errors_of(test::Backend::kMessages, GetParam().size, options,
                                      test::fail_on_one_channel);
  for (const std::string& error : errors)
    EXPECT_NE(error.find(" of tp, f32 (10)"), error.npos) << error;
}

std::vector<RingCase> ring_cases() {
  std::vector<RingCase> all;
  for (const int size : {2, 3, 4, 7}) all.push_back({Algorithm::kRing, size, 1});
  for (const auto& [size, here] : {std::pair(3, 2), {4, 2}, {6, 3}, {7, 3}})
    all.push_back({Algorithm::kHierarchical, size, here});
  for (const auto& [size, here] : {std::pair(2, 1), {3, 1}, {4, 2}, {4, 4}})
    all.push_back({Algorithm::kAuto, size, here});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Rings, testing::ValuesIn(ring_cases()), [](const auto& info) {
  return fmt::format("{}{}by{}", algorithm_name(info.param.algorithm), info.param.size,
                     info.param.ranks_a_host);
});

INSTANTIATE_TEST_SUITE_P(Backends, Collectives, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(test::name_of(info.param.backend)) + std::to_string(info.param.size);
});

}  // namespace
}  // namespace atl::comm
