#include "atoll/plan/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"

namespace atl::plan {

namespace {

// Every choice of every size, and those kept that multiply to the ranks.
std::vector<Layout> by_brute_force(int ranks, std::int64_t batch) {
  struct Order {
    const char* schedule;
    int chunks;
  };
  std::vector<Layout> all;
  const auto add_choices = [&](Layout at) {
    for (const Order order : {Order{"gpipe", 0}, Order{"1f1b", 0}, Order{"interleaved", 2},
                              Order{"interleaved", 4}, Order{"zb-h1", 0}, Order{"zb-v", 0}}) {
      if (at.stages == 1 && std::string(order.schedule) != "1f1b") continue;
      at.schedule = order.schedule;
      at.chunks = order.chunks;
      for (at.zero = 0; at.zero <= 3; ++at.zero) {
        if (at.data * at.context == 1 && at.zero > 0) continue;
        for (const char* recompute : {"none", "selective", "full"}) {
          at.recompute = recompute;
          for (at.micro_batch = 1; at.micro_batch <= batch; ++at.micro_batch) {
            if (batch % at.micro_batch != 0) continue;
            if (at.context == 1 || at.micro_batch == 1) all.push_back(at);
          }
        }
      }
    }
  };
  for (int data = 1; data <= ranks; ++data) {
    for (int tensor = 1; tensor <= ranks; ++tensor) {
      for (int stages = 1; stages <= ranks; ++stages) {
        for (int context = 1; context <= ranks; ++context) {
          if (data * tensor * stages * context != ranks) continue;
          add_choices({.data = data, .tensor = tensor, .stages = stages, .context = context});
        }
      }
    }
  }
  return all;
}

TEST(Layouts, AreThoseThatBruteForceFinds) {
  const train::TrainConfig config = train::load_recipe("", small_recipe());
  for (const int ranks : {1, 2, 4, 6, 8}) {
    const std::vector<Layout> all = all_layouts(config, {}, ranks);
    const std::vector<Layout> expected = by_brute_force(ranks, config.train.batch_size);
    EXPECT_EQ(all.size(), expected.size()) << ranks;
    EXPECT_TRUE(std::is_permutation(all.begin(), all.end(), expected.begin(), expected.end()))
        << ranks;
  }
}

TEST(Layouts, KeepWhatTheRecipeGives) {
  const train::Recipe recipe(
      "", small_recipe({"--train.micro_batch=2", "--dp.zero=1", "--parallel.tp=2"}));
  const std::vector<Layout> all =
      all_layouts(recipe.config(), given_in(recipe.settings()), /*ranks=*/4);
  EXPECT_FALSE(all.empty());
  for (const Layout& layout : all) {
    EXPECT_EQ(layout.micro_batch, 2);
    EXPECT_EQ(layout.zero, 1);
    EXPECT_EQ(layout.tensor, 2);
  }
}

TEST(Layouts, AreWhatTheirArgumentsMake) {
  Variants variants("", small_recipe());
  const train::TrainConfig base = train::load_recipe("", small_recipe());
  for (const Layout& layout : all_layouts(base, {}, 4)) {
    try {
      EXPECT_EQ(layout_of(variants.with(layout), 4), layout) << describe(layout);
    } catch (const Error&) {
      continue;  // a run does not take it
    }
  }
}

TEST(Layouts, AreNearerTheLessTheyDiffer) {
  const Layout at = {.data = 2, .tensor = 2, .stages = 1, .micro_batch = 4};
  Layout other = at;
  EXPECT_EQ(distance(at, other), 0);
  other.micro_batch = 2;
  const double one = distance(at, other);
  other.data = 1, other.stages = 2;
  EXPECT_GT(distance(at, other), one);
  EXPECT_EQ(distance(at, other), distance(other, at));
}

}  // namespace

}  // namespace atl::plan
