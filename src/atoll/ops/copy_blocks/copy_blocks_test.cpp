#include "atoll/ops/copy_blocks/copy_blocks.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

TEST(CopyBlocks, MovesBlocksAndNothingElse) {
  test::TestRun run(2, 0);
  // (3, 4, 5) to (4, 3, 2) of its columns 1 and 2.
  auto x = test::random_tensor<double>({3, 4, 5}, 1, 1.0);
  test::OwnedTensor<double> y({4, 3, 2});
  for (std::int64_t i = 0; i < y.size(); ++i) y[i] = -7;
  copy_blocks(run, {3, 4}, 2, x, {1, 20, 5}, y, {0, 2, 6});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) {
      for (std::int64_t e = 0; e < 2; ++e) {
        EXPECT_EQ(y[(j * 3 + i) * 2 + e], x[(i * 4 + j) * 5 + 1 + e]);
      }
    }
  }
  // One block back: the rest of its tensor stays.
  test::OwnedTensor<double> z({3, 4, 5});
  for (std::int64_t i = 0; i < z.size(); ++i) z[i] = 9;
  copy_blocks(run, {1, 1}, 2, y, {0, 0, 0}, z, {1, 0, 0});
  for (std::int64_t i = 0; i < z.size(); ++i) {
    EXPECT_EQ(z[i], i == 1 || i == 2 ? x[i] : 9) << i;
  }
}

TEST(CopyBlocks, ThatDoNotLieInTheirTensorAreRefused) {
  test::TestRun run(1, 0);
  auto x = test::random_tensor<float>({4, 4}, 1, 1.0);
  test::OwnedTensor<float> y({4, 4});
  EXPECT_THROW(copy_blocks(run, {4, 1}, 5, x, {0, 4, 0}, y, {0, 4, 0}), Error);
  EXPECT_THROW(copy_blocks(run, {4, 1}, 4, x, {1, 4, 0}, y, {0, 4, 0}), Error);
  EXPECT_NO_THROW(copy_blocks(run, {0, 4}, 4, x, {99, 4, 0}, y, {0, 4, 0}));
}

}  // namespace
}  // namespace atl::ops
