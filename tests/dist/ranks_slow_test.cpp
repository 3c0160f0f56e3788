// The suite of collectives over real processes, for the numbers of ranks that take longer.

#include "ranks_fixture.h"

namespace atl::dist {
namespace {

class Suite : public Ranks {};
TEST_P(Suite, IsBitwiseTheSerialChain) {
  Island island = start("suite");
  for (const Ended& ended : island.wait()) EXPECT_EQ(ended.exit_code, 0) << ended.output;
}
INSTANTIATE_TEST_SUITE_P(Dist, Suite,
                         testing::Values(Case{"mpi", 4}, Case{"gloo", 4}, Case{"gloo-tcp", 3},
                                         Case{"tcp", 4}, Case{"tcp-alone", 2},
                                         Case{"tcp-alone", 4}),
                         case_name);

}  // namespace
}  // namespace atl::dist
