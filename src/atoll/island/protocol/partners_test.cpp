#include "atoll/island/protocol/partners.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace atl::island {
namespace {

std::vector<IslandId> islands(std::size_t count) {
  std::vector<IslandId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<IslandId>(2 * i + 1));
  return ids;
}

TEST(Partners, PairsAreDisjointAndNobodyRests) {
  for (std::size_t count = 1; count < 30; ++count) {
    for (std::int64_t step = 0; step < 40; ++step) {
      std::map<int, int> sizes;
      for (const int exchange : exchanges_of(step, islands(count))) ++sizes[exchange];
      std::multiset<int> found;
      for (const auto& [exchange, size] : sizes) {
        EXPECT_GE(exchange, 1);
        found.insert(size);
      }
      std::multiset<int> expected;
      for (std::size_t i = 0; i < count / 2; ++i) expected.insert(2);
      if (count == 1) expected = {1};
      if (count > 1 && count % 2 == 1) {
        expected.erase(expected.begin());
        expected.insert(3);
      }
      EXPECT_EQ(found, expected) << count << " islands, outer step " << step;
    }
  }
}

// Of a power of two: what one island had has reached all after log2 of them outer steps.
TEST(Partners, AHypercubeSpreadsInItsDimensions) {
  for (const std::size_t count : {2, 4, 8, 16, 64}) {
    std::set<std::size_t> reached = {0};
    std::size_t steps = 0;
    for (std::int64_t step = 5; reached.size() < count; ++step, ++steps) {
      const std::vector<int> exchanges = exchanges_of(step, islands(count));
      std::set<std::size_t> next = reached;
      for (const std::size_t one : reached) {
        for (std::size_t other = 0; other < count; ++other) {
          if (exchanges[one] == exchanges[other]) next.insert(other);
        }
      }
      reached = next;
    }
    EXPECT_EQ(std::size_t{1} << steps, count);
  }
}

// Every pair of six meets sooner or later, and not in a fixed order.
TEST(Partners, OtherNumbersMeetAtRandom) {
  std::set<std::pair<std::size_t, std::size_t>> met;
  for (std::int64_t step = 0; step < 100; ++step) {
    const std::vector<int> exchanges = exchanges_of(step, islands(6));
    for (std::size_t a = 0; a < 6; ++a) {
      for (std::size_t b = a + 1; b < 6; ++b) {
        if (exchanges[a] == exchanges[b]) met.emplace(a, b);
      }
    }
  }
  EXPECT_EQ(met.size(), 15U);
}

// The audit of an old ledger must get what its coordinator got: these are fixed for ever.
TEST(Partners, AreTheSameForEver) {
  EXPECT_EQ(exchanges_of(3, islands(4)), (std::vector<int>{1, 2, 1, 2}));
  EXPECT_EQ(exchanges_of(0, islands(1)), (std::vector<int>{1}));
}

}  // namespace
}  // namespace atl::island
