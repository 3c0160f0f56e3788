#include "atoll/param_server/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace atl::param_server {
namespace {

// GPT-2's parameters as ranges: a tied embedding of 38M first, then blocks.
std::vector<optim::ParamRange> gpt2_ranges(std::int64_t& total) {
  std::vector<optim::ParamRange> ranges;
  total = 0;
  const auto add = [&](std::int64_t count) {
    ranges.push_back({.begin = total, .count = count});
    total += count;
  };
  add(std::int64_t{50257} * 768);
  add(std::int64_t{1024} * 768);
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::int64_t rows : {2304, 768, 3072}) add(rows * 768 + rows);
    add(std::int64_t{3072} * 768 + 768);
    add(std::int64_t{4} * 768);
  }
  return ranges;
}

std::vector<std::int64_t> loads(const std::vector<Slice>& slices,
                                const std::vector<std::vector<ServerId>>& chains,
                                std::size_t num_servers) {
  std::vector<std::int64_t> sums(num_servers);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    for (const ServerId server : chains[i]) sums[server - 1] += slices[i].count;
  }
  return sums;
}

TEST(Slices, CoverTheVectorAndBeginBetweenBlocks) {
  std::int64_t total = 0;
  const std::vector<optim::ParamRange> ranges = gpt2_ranges(total);
  std::int64_t at = 0;
  for (const Slice& slice : cut_into_slices(ranges, total)) {
    EXPECT_EQ(slice.begin, at);
    EXPECT_LE(slice.count, kMaxSliceElements);
    at += slice.count;
    for (const optim::ParamRange& range : slice.ranges) {
      const auto whole =
          std::find_if(ranges.begin(), ranges.end(), [&](const optim::ParamRange& other) {
            return range.begin >= other.begin && range.begin < other.begin + other.count;
          });
      EXPECT_EQ((range.begin - whole->begin) % 8192, 0);
      EXPECT_EQ(range.value_begin, range.begin - slice.begin);
    }
  }
  EXPECT_EQ(at, total);
}

TEST(Placement, IsEvenThoughAnEmbeddingIsAThirdOfTheModel) {
  std::int64_t total = 0;
  const std::vector<optim::ParamRange> ranges = gpt2_ranges(total);
  const std::vector<Slice> slices = cut_into_slices(ranges, total);
  for (std::size_t k = 1; k <= 8; ++k) {
    std::vector<ServerId> servers(k);
    std::iota(servers.begin(), servers.end(), 1);
    for (const std::int64_t replicas : {1, 2}) {
      const auto chains = place(slices, servers, replicas);
      const auto copies = std::min<std::int64_t>(replicas, static_cast<std::int64_t>(k));
      const double even = static_cast<double>(total * copies) / static_cast<double>(k);
      for (const std::int64_t load : loads(slices, chains, k)) {
        EXPECT_NEAR(static_cast<double>(load), even, 0.05 * even);
      }
    }
  }
}

TEST(Placement, MovesNoMoreThanItsShareToANewServer) {
  std::int64_t total = 0;
  const std::vector<optim::ParamRange> ranges = gpt2_ranges(total);
  const std::vector<Slice> slices = cut_into_slices(ranges, total);
  for (std::size_t k = 1; k <= 6; ++k) {
    std::vector<ServerId> servers(k);
    std::iota(servers.begin(), servers.end(), 1);
    View view;
    view.chains = place(slices, servers, 1);
    view.joining.assign(slices.size(), kNobody);
    servers.push_back(static_cast<ServerId>(k + 1));
    std::int64_t moved = 0;
    for (const Move& move : plan_moves(slices, view, servers, 1, {})) {
      EXPECT_EQ(move.to, k + 1);
      moved += slices[move.slice].count;
      view.chains[move.slice] = {move.to};
    }
    EXPECT_LE(static_cast<double>(moved) / static_cast<double>(total),
              1.0 / static_cast<double>(k + 1) + 0.05);
    const double even = static_cast<double>(total) / static_cast<double>(k + 1);
    for (const std::int64_t load : loads(slices, view.chains, k + 1)) {
      EXPECT_NEAR(static_cast<double>(load), even, 0.05 * even);
    }
  }
}

TEST(Placement, GivesWhatLostACopyAnother) {
  const std::vector<Slice> slices(8, Slice{.begin = 0, .count = 10, .ranges = {}});
  View view;
  view.chains = place(slices, std::vector<ServerId>{1, 2, 3}, 2);
  view.joining.assign(slices.size(), kNobody);
  for (auto& chain : view.chains) std::erase(chain, 2u);
  for (const Move& move : plan_moves(slices, view, std::vector<ServerId>{1, 3}, 2, {})) {
    const std::vector<ServerId>& chain = view.chains[move.slice];
    EXPECT_EQ(std::count(chain.begin(), chain.end(), move.to), 0);
    view.chains[move.slice].push_back(move.to);
  }
  for (const auto& chain : view.chains) EXPECT_EQ(chain.size(), 2u);
}

}  // namespace
}  // namespace atl::param_server
