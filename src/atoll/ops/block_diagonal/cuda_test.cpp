// block_diagonal and its gradient on the fake GPU, with the bits of ref: each element is rounded
// once.

#include "atoll/ops/block_diagonal/block_diagonal.h"

#include <gtest/gtest.h>

#include "atoll/ops/cuda/testing.h"

namespace atl::ops {
namespace {

using test::Gpu;
using test::OwnedTensor;

const auto kDiffers = [](std::uint64_t order) { ADD_FAILURE() << "other bits in order " << order; };

struct Case {
  std::int64_t n, r;
  std::vector<DiagonalBlock> blocks;

  std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const DiagonalBlock& block : blocks) sum += block.rows;
    return sum;
  }
  std::int64_t width() const { return static_cast<std::int64_t>(blocks.size()) * r; }
};

// Parts that leave rows out, an empty one, one that fills a block of threads, one that does not.
const std::vector<Case> kCases = {{5, 1, {{1, 3}}},
                                  {40, 3, {{0, 7}, {9, 0}, {20, 20}}},
                                  {64, 8, {{0, 32}, {32, 32}}},
                                  {100, 4, {{30, 70}, {0, 20}}}};

template <typename T>
struct Spread {
  OwnedTensor<T> x, y;
  bool operator==(const Spread&) const = default;
};

template <typename T>
void check_forward(const Case& at) {
  const Spread<T> start{test::random_tensor<T>({at.rows(), at.r}, 1, 1.0),
                        test::random_tensor<T>({at.n, at.width()}, 2, 1.0)};
  const auto got = test::in_every_order(
      start,
      [&](Gpu& gpu, Spread<T>& s) { block_diagonal(gpu.run, 0.3, gpu(s.x), at.blocks, gpu(s.y)); },
      kDiffers);
  Spread<T> expected = start;
  test::TestRun host;
  block_diagonal(host, 0.3, expected.x, at.blocks, expected.y);
  EXPECT_EQ(got, expected) << at.n;
}

TEST(CudaBlockDiagonal, GivesTheBitsOfRef) {
  for (const Case& at : kCases) {
    check_forward<float>(at);
    check_forward<Bf16>(at);
  }
}

TEST(CudaBlockDiagonal, BackwardAddsTheBitsOfRef) {
  for (const Case& at : kCases) {
    const Spread<float> start{test::random_tensor<float>({at.rows(), at.r}, 1, 1.0),
                              test::random_tensor<float>({at.n, at.width()}, 2, 1.0)};
    const auto got = test::in_every_order(
        start,
        [&](Gpu& gpu, Spread<float>& s) {
          block_diagonal_backward(gpu.run, 0.3, gpu(s.y), at.blocks, gpu(s.x));
        },
        kDiffers);
    Spread<float> expected = start;
    test::TestRun host;
    block_diagonal_backward(host, 0.3, expected.y, at.blocks, expected.x);
    EXPECT_EQ(got, expected) << at.n;
  }
}

}  // namespace
}  // namespace atl::ops
