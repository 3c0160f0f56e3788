// Ranks that compute on GPUs that the host plays, and are lost: the run goes on from copies that
// the others keep, with the bits of a run that lost nobody.

#include "atoll/train/regroup/regroup_testing.h"

namespace atl::train {
namespace {

class GpuRegroup : public RegroupTest {
 protected:
  static std::vector<std::string> on_gpus(int zero, std::vector<std::string> more = {}) {
    std::vector<std::string> all = exact(zero);
    all.insert(all.end(),
               {"--device.kind=fake_cuda", "--train.context=16", "--train.steps=5",
                "--model.hidden_size=16", "--data.vocab_size=270", "--eval.max_tokens=64"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(GpuRegroup, GoesOnFromCopiesOfALostRank) {
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(zero);
    const Ended expected = train_ranks(fmt::format("whole{}", zero), 3, on_gpus(zero));
    const Ended ended = train_crew(fmt::format("lost{}", zero), 3,
                                   on_gpus(zero, {"--device.fake_order=3"}), {{1, 40}});
    EXPECT_EQ(ended.outcome.step, 5);
    EXPECT_TRUE(ended.values == expected.values);
  }
}

}  // namespace
}  // namespace atl::train
