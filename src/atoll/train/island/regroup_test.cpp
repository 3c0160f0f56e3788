#include "atoll/train/island/regroup_testing.h"

namespace atl::train {
namespace {

TEST_F(IslandRegroupTest, ARankOfAnIslandThatIsLostChangesNoBit) {
  for (const Kind& kind : kinds()) {
    const Ended expected = train_whole(kind, 3);
    const std::string name = kind.name + "-lost";
    const Ended ended = train_crew(name, 3, settings(kind, name), {{.rank = 1, .calls = 130}});
    EXPECT_TRUE(ended.values == expected.values) << name;
    EXPECT_EQ(ended.outcome.step, expected.outcome.step) << name;
  }
}

TEST_F(IslandRegroupTest, ARankThatJoinsAnIslandChangesNoBit) {
  for (const Kind& kind : kinds()) {
    const Ended expected = train_whole(kind, 2);
    const std::string name = kind.name + "-join";
    const Ended ended = train_crew(name, 2, settings(kind, name), {}, /*joins_after=*/3);
    EXPECT_TRUE(ended.values == expected.values) << name;
  }
}

}  // namespace
}  // namespace atl::train
