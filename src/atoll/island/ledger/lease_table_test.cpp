#include "atoll/island/ledger/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Ranges = std::vector<BatchRange>;

TEST(LeaseTable, GrantsTheLowestFreeBatchesFirst) {
  LeaseTable table(100);
  EXPECT_THAT(table.grant(1, 10), ElementsAre(BatchRange{0, 10}));
  EXPECT_THAT(table.grant(2, 10), ElementsAre(BatchRange{10, 20}));
  EXPECT_TRUE(table.give_back(1, Ranges{{2, 4}, {6, 8}}));
  EXPECT_THAT(table.grant(3, 5),
              ElementsAre(BatchRange{2, 4}, BatchRange{6, 8}, BatchRange{20, 21}));
  EXPECT_THAT(table.held_by(1), ElementsAre(BatchRange{0, 2}, BatchRange{4, 6}, BatchRange{8, 10}));
  EXPECT_EQ(table.high_water(), 21);
}

TEST(LeaseTable, GrantsFewerNearTheEndAndNothingThere) {
  LeaseTable table(10);
  EXPECT_THAT(table.grant(1, 8), ElementsAre(BatchRange{0, 8}));
  EXPECT_THAT(table.grant(2, 8), ElementsAre(BatchRange{8, 10}));
  EXPECT_THAT(table.grant(3, 8), IsEmpty());
  EXPECT_TRUE(table.consume(1, Ranges{{0, 8}}));
  EXPECT_FALSE(table.is_done());
  EXPECT_TRUE(table.consume(2, Ranges{{8, 10}}));
  EXPECT_TRUE(table.is_done());
}

TEST(LeaseTable, AnEndlessRunNeverRunsOut) {
  LeaseTable table(kEndless);
  EXPECT_EQ(table.grant(1, kEndless - 1).front().size(), kEndless - 1);
  EXPECT_THAT(table.grant(2, 5), ElementsAre(BatchRange{kEndless - 1, kEndless}));
  EXPECT_EQ(table.num_free(), 0);
}

TEST(LeaseTable, RefusesWhatCannotBeAndChangesNothing) {
  LeaseTable table(30);
  table.grant(1, 10);
  table.grant(2, 10);
  ASSERT_TRUE(table.consume(1, Ranges{{0, 5}}));
  const Ranges impossible[] = {{{0, 5}},         {{4, 6}},   {{5, 11}},
                               {{20, 21}},       {{29, 31}}, {{-1, 6}},
                               {{5, 7}, {6, 8}}, {{7, 5}},   {{5, 6}, {10, 11}}};
  for (const Ranges& ranges : impossible) {
    EXPECT_FALSE(table.consume(1, ranges)) << ranges.front().begin;
    EXPECT_FALSE(table.give_back(1, ranges)) << ranges.front().begin;
    EXPECT_FALSE(table.holds(1, ranges)) << ranges.front().begin;
  }
  EXPECT_FALSE(table.consume(3, Ranges{{5, 6}}));
  EXPECT_FALSE(table.unconsume(Ranges{{4, 6}}));
  EXPECT_FALSE(table.lease(3, Ranges{{19, 21}}));
  EXPECT_FALSE(table.lease(3, Ranges{{28, 31}}));
  EXPECT_THAT(table.held_by(1), ElementsAre(BatchRange{5, 10}));
  EXPECT_THAT(table.held_by(3), IsEmpty());
  EXPECT_EQ(table.num_consumed(), 5);
  EXPECT_EQ(table.num_leased(), 15);
  EXPECT_EQ(table.num_free(), 10);
}

TEST(LeaseTable, ALogCanLeaseOutOfOrder) {
  LeaseTable table(100);
  EXPECT_TRUE(table.lease(1, Ranges{{40, 50}, {10, 20}}));
  EXPECT_EQ(table.high_water(), 50);
  EXPECT_THAT(table.grant(2, 45),
              ElementsAre(BatchRange{0, 10}, BatchRange{20, 40}, BatchRange{50, 65}));
}

// Every batch by itself: 0 free, an island's number, or -1 consumed.
class Naive {
 public:
  explicit Naive(std::int64_t total) : batches_(static_cast<std::size_t>(total), 0) {}

  std::set<std::int64_t> grant(int island, std::int64_t count) {
    std::set<std::int64_t> granted;
    for (std::size_t b = 0; b < batches_.size() && std::ssize(granted) < count; ++b) {
      if (batches_[b] != 0) continue;
      batches_[b] = island;
      granted.insert(static_cast<std::int64_t>(b));
    }
    return granted;
  }
  // Moves all of `ranges` from one state to another, if all are in it and none is named twice.
  bool move(const Ranges& ranges, int from, int to) {
    std::set<std::int64_t> named;
    for (const BatchRange& range : ranges) {
      for (std::int64_t b = range.begin; b < range.end; ++b) {
        if (b >= std::ssize(batches_) || at(b) != from || !named.insert(b).second) return false;
      }
    }
    for (const std::int64_t b : named) at(b) = to;
    return true;
  }
  std::set<std::int64_t> in(int state) const {
    std::set<std::int64_t> found;
    for (std::size_t b = 0; b < batches_.size(); ++b) {
      if (batches_[b] == state) found.insert(static_cast<std::int64_t>(b));
    }
    return found;
  }

 private:
  int& at(std::int64_t batch) { return batches_[static_cast<std::size_t>(batch)]; }
  std::vector<int> batches_;
};

std::set<std::int64_t> batches_of(const Ranges& ranges) {
  std::set<std::int64_t> batches;
  std::int64_t end = -1;
  for (const BatchRange& range : ranges) {
    RC_ASSERT(range.begin < range.end);
    RC_ASSERT(range.begin > end);  // ascending, and as few as can be
    end = range.end;
    for (std::int64_t b = range.begin; b < range.end; ++b) batches.insert(b);
  }
  return batches;
}

RC_GTEST_PROP(LeaseTableProperty, IsTheSameAsAListOfAllBatches, ()) {
  constexpr int kConsumed = -1;
  const auto total = *rc::gen::inRange<std::int64_t>(0, 60);
  LeaseTable table(total);
  Naive naive(total);
  for (int i = *rc::gen::inRange(0, 80); i > 0; --i) {
    const auto island = *rc::gen::inRange(1, 4);
    const auto id = static_cast<IslandId>(island);
    Ranges ranges;
    // Often exactly what an island holds, so that not all is refused.
    if (*rc::gen::arbitrary<bool>()) {
      ranges = table.held_by(id);
      if (!ranges.empty() && *rc::gen::arbitrary<bool>()) ranges.pop_back();
    } else {
      for (int n = *rc::gen::inRange(0, 3); n > 0; --n) {
        const auto begin = *rc::gen::inRange<std::int64_t>(0, 62);
        ranges.push_back({begin, begin + *rc::gen::inRange<std::int64_t>(0, 8)});
      }
    }
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
      case 1: {
        const auto count = *rc::gen::inRange<std::int64_t>(0, 20);
        RC_ASSERT(batches_of(table.grant(id, count)) == naive.grant(island, count));
        break;
      }
      case 2:
        RC_ASSERT(table.give_back(id, ranges) == naive.move(ranges, island, 0));
        break;
      case 3:
        RC_ASSERT(table.consume(id, ranges) == naive.move(ranges, island, kConsumed));
        break;
      case 4:
        RC_ASSERT(table.unconsume(ranges) == naive.move(ranges, kConsumed, 0));
        break;
      default:
        RC_ASSERT(table.lease(id, ranges) == naive.move(ranges, 0, island));
    }
    std::int64_t leased = 0;
    for (int other = 1; other < 4; ++other) {
      const auto held = batches_of(table.held_by(static_cast<IslandId>(other)));
      RC_ASSERT(held == naive.in(other));
      leased += std::ssize(held);
    }
    RC_ASSERT(batches_of(table.consumed()) == naive.in(kConsumed));
    RC_ASSERT(table.num_leased() == leased);
    RC_ASSERT(table.num_consumed() == std::ssize(naive.in(kConsumed)));
    RC_ASSERT(table.num_free() == std::ssize(naive.in(0)));
    RC_ASSERT(table.is_done() == (std::ssize(naive.in(kConsumed)) == total));
  }
}

}  // namespace
}  // namespace atl::island
