#include "atoll/ops/profile.h"

#include <gtest/gtest.h>

#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::TestRun;

TEST(OpProfile, CallsOfOneKindAreOneRow) {
  TestRun run(1, 1 << 20);
  OpProfile profile;
  run.run.profile = &profile;
  OwnedTensor<float> a({6, 4}), b({4, 5}), c({6, 5});
  OwnedTensor<float> few({2, 4}), d({2, 5});
  matmul(run, Transpose::kNN, a, b, c);
  matmul(run, Transpose::kNN, a, b, c);
  matmul(run, Transpose::kNN, few, b, d);
  ASSERT_EQ(profile.rows().size(), 2U);
  const OpProfile::Row& row = profile.rows().front();
  EXPECT_EQ(row.op, "matmul_nn");
  EXPECT_EQ(row.calls, 2);
  EXPECT_EQ(row.cost.shape, Shape({6, 5, 4}));
  EXPECT_EQ(row.cost.flops, 2 * 6 * 5 * 4);
  EXPECT_EQ(row.cost.bytes, 4 * (24 + 20 + 30));
  EXPECT_GT(row.seconds, 0);
  EXPECT_EQ(profile.rows().back().calls, 1);
}

TEST(OpProfile, ACallWithinACallIsPartOfIt) {
  OpProfile profile;
  {
    const OpProfile::Call outer(&profile);
    {
      const OpProfile::Call inner(&profile);
      inner.note("inner", "cpu", {});
    }
    outer.note("outer", "cpu", {});
  }
  ASSERT_EQ(profile.rows().size(), 1U);
  EXPECT_EQ(profile.rows().front().op, "outer");
}

}  // namespace
}  // namespace atl::ops
