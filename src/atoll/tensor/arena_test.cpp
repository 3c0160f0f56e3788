#include "atoll/tensor/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace atl {
namespace {

bool lives(const Placement& at, std::int64_t tick) {
  if (at.spans.empty()) return at.first_tick <= tick && tick <= at.last_tick;
  return std::any_of(at.spans.begin(), at.spans.end(),
                     [&](const TickSpan& span) { return span.first <= tick && tick <= span.last; });
}

bool live_together(const Placement& a, const Placement& b) {
  for (std::int64_t tick = 0; tick < 40; ++tick) {
    if (lives(a, tick) && lives(b, tick)) return true;
  }
  return false;
}

bool overlap(const Placement& a, const Placement& b) {
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

MemoryPlan random_plan(std::uint32_t seed) {
  std::mt19937 random(seed);
  MemoryPlan plan;
  const int count = static_cast<int>(random() % 60);
  for (int i = 0; i < count; ++i) {
    const std::size_t bytes = random() % 8 == 0 ? 0 : random() % 5000;
    const std::int64_t first = random() % 20;
    if (random() % 8 == 0) {
      plan.request_forever("r", "forever", bytes);
    } else if (random() % 3 == 0) {
      const auto last = first + static_cast<std::int64_t>(random() % 3);
      const auto again = last + 1 + static_cast<std::int64_t>(random() % 6);
      plan.request("r", i % 2 == 0 ? "even" : "odd", bytes, {{first, last}, {again, again + 2}});
    } else {
      plan.request("r", i % 2 == 0 ? "even" : "odd", bytes, first,
                   first + static_cast<std::int64_t>(random() % 8));
    }
  }
  plan.place();
  return plan;
}

TEST(MemoryPlan, NeverOverlapsRequestsThatLiveTogether) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const MemoryPlan plan = random_plan(seed);
    const std::vector<Placement>& all = plan.placements();
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i].offset % kArenaAlignment, 0U);
      ASSERT_LE(all[i].offset + all[i].bytes, plan.total_bytes());
      for (std::size_t j = 0; j < i; ++j) {
        ASSERT_FALSE(live_together(all[i], all[j]) && overlap(all[i], all[j]))
            << "seed " << seed << ": requests " << j << " and " << i;
      }
    }
  }
}

// No plan can take less than what lives at the worst tick, or needs more than the sum.
TEST(MemoryPlan, TakesAtLeastThePeakAndAtMostTheSum) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const MemoryPlan plan = random_plan(seed);
    std::size_t sum = 0;
    std::size_t peak = 0;
    for (const Placement& placement : plan.placements()) sum += placement.bytes;
    for (std::int64_t tick = 0; tick < 40; ++tick) {
      std::size_t live = 0;
      for (const Placement& placement : plan.placements()) {
        live += lives(placement, tick) ? placement.bytes : 0;
      }
      peak = std::max(peak, live);
    }
    EXPECT_EQ(plan.peak_bytes(), peak);
    EXPECT_GE(plan.total_bytes(), peak);
    EXPECT_LE(plan.total_bytes(), sum);
  }
}

TEST(MemoryPlan, ReusesMemoryAfterALifeHasEnded) {
  MemoryPlan plan;
  for (int tick = 0; tick < 10; ++tick) plan.request("step", "activations", 1000, tick, tick);
  plan.request_forever("weights", "parameters", 100);
  plan.place();
  EXPECT_EQ(plan.total_bytes(), align_up(1000) + align_up(100));
  EXPECT_EQ(plan.peak_bytes("activations"), align_up(1000));
  EXPECT_EQ(plan.peak_bytes("parameters"), align_up(100));
  EXPECT_EQ(plan.peak_bytes("nothing"), 0U);
}

TEST(MemoryPlan, LendsMemoryBetweenTwoSpans) {
  MemoryPlan plan;
  plan.request("in turns", "g", 1000, {{0, 1}, {4, 5}});
  plan.request("between", "g", 1000, 2, 3);
  plan.place();
  EXPECT_EQ(plan.total_bytes(), align_up(1000));
  EXPECT_THROW(plan.request("r", "g", 1, {{0, 2}, {2, 3}}), Error);
  EXPECT_THROW(plan.request("r", "g", 1, std::vector<TickSpan>{}), Error);
}

TEST(MemoryPlan, RefusesALifeThatEndsBeforeItBegins) {
  MemoryPlan plan;
  EXPECT_THROW(plan.request("r", "g", 1, 5, 4), Error);
}

TEST(Arena, GivesZeroedTensorsWhereThePlanSays) {
  const auto device = open_cpu(1);
  MemoryPlan plan;
  const int first = plan.request_forever("a", "g", 24);
  const int second = plan.request_forever("b", "g", 24);
  plan.place();
  const Arena arena(*device, plan);
  EXPECT_EQ(arena.bytes(), plan.total_bytes());
  const Tensor a = arena.tensor(first, {Dtype::kF32, {2, 3}});
  const Tensor b = arena.tensor(second, {Dtype::kI64, {3}});
  std::fill_n(a.data<float>(), 6, 1.0F);
  EXPECT_EQ(std::count(b.data<std::int64_t>(), b.data<std::int64_t>() + 3, 0), 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.raw()) % kArenaAlignment, 0U);
  EXPECT_THROW(arena.tensor(first, {Dtype::kF32, {17}}), Error);
  EXPECT_ANY_THROW(arena.data(2));
}

}  // namespace
}  // namespace atl
