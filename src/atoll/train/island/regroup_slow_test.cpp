#include "atoll/train/island/regroup_testing.h"

namespace atl::train {
namespace {

TEST_F(IslandRegroupTest, ARankLostAnywhereChangesNoBit) {
  for (const Kind& kind : kinds()) {
    const Ended expected = train_whole(kind, 3);
    // From where the island has joined to its last exchange, in strides that meet every kind of
    // call.
    for (int calls = 60, n = 0; n < 12; calls += 17, ++n) {
      const Kill kill = {.rank = 1 + n % 2, .calls = calls};
      const std::string name = fmt::format("{}-{}", kind.name, calls);
      const Ended ended = train_crew(name, 3, settings(kind, name), {kill});
      EXPECT_TRUE(ended.values == expected.values) << name;
      EXPECT_EQ(ended.outcome.step, expected.outcome.step) << name;
    }
  }
}

}  // namespace
}  // namespace atl::train
