#include "atoll/ops/block_diagonal/block_diagonal.h"

#include <gtest/gtest.h>

#include "atoll/ops/testing.h"

namespace atl::ops {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr DiagonalBlock kBlocks[] = {{4, 2}, {0, 3}};

TEST(BlockDiagonal, PutsEachBlockInItsRowsAndColumns) {
  TestRun run;
  auto x = random_tensor<float>({5, 2}, 1);
  OwnedTensor<float> y({7, 4});
  for (float& value : y.values) value = 9;
  block_diagonal(run.run, 0.5, x.view(), kBlocks, y.view());
  for (std::int64_t row = 0; row < 7; ++row) {
    for (std::int64_t column = 0; column < 4; ++column) {
      float wanted = 0;
      if ((row == 4 || row == 5) && column < 2) wanted = 0.5F * x.values[(row - 4) * 2 + column];
      if (row < 3 && column >= 2) wanted = 0.5F * x.values[(row + 2) * 2 + column - 2];
      EXPECT_EQ(y.values[row * 4 + column], wanted) << row << ", " << column;
    }
  }
}

TEST(BlockDiagonal, Bf16IsTheRoundedF32) {
  TestRun run;
  auto x = random_tensor<float>({5, 2}, 1);
  std::vector<Bf16> narrow(10), spread(28);
  for (std::size_t i = 0; i < 10; ++i) {
    narrow[i] = to_bf16(x.values[i]);
    x.values[i] = to_f32(narrow[i]);
  }
  OwnedTensor<float> y({7, 4});
  block_diagonal(run.run, 0.3, x.view(), kBlocks, y.view());
  block_diagonal(run.run, 0.3, Tensor(narrow.data(), {Dtype::kBf16, {5, 2}}), kBlocks,
                 Tensor(spread.data(), {Dtype::kBf16, {7, 4}}));
  for (std::size_t i = 0; i < 28; ++i) EXPECT_EQ(spread[i], to_bf16(y.values[i])) << i;
}

// <dy, f(x)> = <f'(dy), x> for a linear map: the backward pass is the transpose.
TEST(BlockDiagonal, BackwardIsTheTransposeAndAdds) {
  TestRun run;
  auto x = random_tensor<double>({5, 2}, 1);
  auto dy = random_tensor<double>({7, 4}, 2);
  OwnedTensor<double> y({7, 4});
  OwnedTensor<double> dx({5, 2});
  for (double& value : dx.values) value = 1;
  block_diagonal(run.run, 0.7, x.view(), kBlocks, y.view());
  block_diagonal_backward(run.run, 0.7, dy.view(), kBlocks, dx.view());
  double left = 0, right = 0;
  for (std::size_t i = 0; i < y.values.size(); ++i) left += dy.values[i] * y.values[i];
  for (std::size_t i = 0; i < x.values.size(); ++i) right += (dx.values[i] - 1) * x.values[i];
  EXPECT_NEAR(left, right, 1e-14);
}

TEST(BlockDiagonal, RefusesABlockBeyondTheMatrix) {
  TestRun run;
  OwnedTensor<float> x({5, 2});
  OwnedTensor<float> y({7, 4});
  const DiagonalBlock beyond[] = {{5, 3}, {0, 2}};
  EXPECT_THROW(block_diagonal(run.run, 1, x.view(), beyond, y.view()), Error);
}

}  // namespace
}  // namespace atl::ops
