#include "atoll/plan/memory.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"
#include "atoll/train/model/options.h"
#include "atoll/train/step/state.h"

namespace atl::plan {

namespace {

// What every rank of the run plans, rank by rank.
std::size_t most_of_all_ranks(const train::TrainConfig& config, int ranks) {
  std::size_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const train::TrainState state(train::state_options(config, 301, -1, ranks, rank));
    most = std::max(most, state.memory().total_bytes());
  }
  return most;
}

TEST(LayoutMemory, IsThatOfTheRankThatPlansMost) {
  Variants variants("", small_recipe());
  const train::TrainConfig base = train::load_recipe("", small_recipe());
  std::size_t looked_at = 0;
  for (const int ranks : {1, 2, 4}) {
    for (const Layout& layout : all_layouts(base, {}, ranks)) {
      try {
        const train::TrainConfig& config = variants.with(layout);
        EXPECT_EQ(largest_memory(config, 301, ranks).bytes, most_of_all_ranks(config, ranks))
            << describe(layout);
        ++looked_at;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kUser) << error.what();
      }
    }
  }
  EXPECT_GT(looked_at, 100U);
}

TEST(LayoutMemory, CountsSharedExperts) {
  for (const char* axis :
       {"--parallel.pp=1", "--parallel.pp=2", "--parallel.tp=2", "--parallel.cp=2"}) {
    for (const int ranks : {2, 4, 8}) {
      for (const char* zero : {"0", "1", "3"}) {
        if (ranks == 2 && std::string_view(axis).ends_with("2")) continue;
        // Experts of a width that two ranks do not divide.
        const train::TrainConfig config = train::load_recipe(
            "", small_recipe({"--model.family=mixtral", "--model.num_experts=4", "--parallel.ep=2",
                              "--model.intermediate_size=33", "--train.micro_batch=1", axis,
                              "--dp.zero=" + std::string(zero)}));
        EXPECT_EQ(largest_memory(config, 301, ranks).bytes, most_of_all_ranks(config, ranks))
            << ranks << " ranks, " << axis << ", ZeRO " << zero;
      }
    }
  }
}

}  // namespace

}  // namespace atl::plan
