#include "atoll/train/regroup/regroup_testing.h"

namespace atl::train {
namespace {

TEST_F(RegroupTest, ARankThatJoinsChangesNoBit) {
  for (int zero = 0; zero <= 3; ++zero) {
    const Ended expected = train_ranks(fmt::format("whole{}", zero), 2, exact(zero));
    const Ended ended =
        train_crew(fmt::format("join{}", zero), 2, exact(zero), {}, /*joins_after=*/3);
    EXPECT_TRUE(ended.values == expected.values) << zero;
  }
}

TEST_F(RegroupTest, ManyMayBeLostOneAfterTheOther) {
  const Ended expected = train_ranks("whole", 4, exact(2));
  const Ended ended = train_crew("four", 4, exact(2), {{3, 60}, {1, 110}, {0, 160}});
  EXPECT_TRUE(ended.values == expected.values);
}

}  // namespace
}  // namespace atl::train
