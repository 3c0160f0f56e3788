#include "atoll/train/regroup/regroup_testing.h"

namespace atl::train {
namespace {

TEST_F(RegroupTest, ARankLostAnywhereChangesNoBit) {
  for (int zero = 0; zero <= 3; ++zero) {
    const Ended expected = train_ranks(fmt::format("whole{}", zero), 3, exact(zero));
    // From where the run is prepared to its last steps, in strides that meet every kind of call.
    for (int calls = 40, n = 0; n < 8; calls += 17, ++n) {
      const Kill kill = {.rank = n % 3, .calls = calls};
      const std::string name = fmt::format("z{}-{}", zero, calls);
      const Ended ended = train_crew(name, 3, exact(zero), {kill});
      EXPECT_TRUE(ended.values == expected.values) << name;
      EXPECT_EQ(ended.outcome.step, 8) << name;
    }
  }
}

}  // namespace
}  // namespace atl::train
