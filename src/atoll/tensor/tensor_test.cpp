#include "atoll/tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace atl {
namespace {

TEST(Shape, CountsElementsAndRows) {
  const Shape shape = {8, 256, 384};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.num_elements(), 8 * 256 * 384);
  EXPECT_EQ(shape.num_rows(), 8 * 256);
  EXPECT_EQ(shape.dim(-1), 384);
  EXPECT_EQ(shape.dim(-3), shape.dim(0));
  EXPECT_EQ(shape.to_string(), "(8, 256, 384)");
}

TEST(Shape, ScalarHasOneElementAndNoDims) {
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().num_rows(), 1);
  EXPECT_EQ(Shape().to_string(), "()");
  EXPECT_THROW(Shape().with_last(2), Error);
}

TEST(Shape, EmptyDimsLeaveNoElements) {
  EXPECT_EQ(Shape({0, 5}).num_elements(), 0);
  EXPECT_EQ(Shape({0, 5}).num_rows(), 0);
  EXPECT_EQ(Shape({5, 0}).num_rows(), 5);
}

TEST(Shape, ComparesDimsAndRank) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2}), Shape({2, 0}));
  EXPECT_EQ(Shape({2, 3}).with_last(7), Shape({2, 7}));
}

TEST(Shape, RefusesFiveDimsAndNegativeOnes) {
  EXPECT_THROW(Shape({1, 2, 3, 4, 5}), Error);
  EXPECT_THROW(Shape({1, -2}), Error);
}

TEST(Spec, KnowsItsBytesForEveryDtype) {
  constexpr Dtype kDtypes[] = {Dtype::kF32, Dtype::kF64, Dtype::kBf16, Dtype::kF16,
                               Dtype::kI32, Dtype::kI64, Dtype::kU8};
  constexpr std::size_t kBytes[] = {4, 8, 2, 2, 4, 8, 1};
  constexpr const char* kNames[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
  for (std::size_t i = 0; i < std::size(kDtypes); ++i) {
    const Spec spec = {kDtypes[i], {3, 5}};
    EXPECT_EQ(spec.bytes(), 15 * kBytes[i]);
    EXPECT_EQ(spec.to_string(), std::string(kNames[i]) + " (3, 5)");
  }
}

TEST(Tensor, RowsAreViewsOfTheSameMemory) {
  std::array<std::int32_t, 24> data;
  std::iota(data.begin(), data.end(), 0);
  for (const Shape& shape : {Shape({24}), Shape({4, 6}), Shape({4, 3, 2}), Shape({4, 1, 3, 2})}) {
    const Tensor tensor(data.data(), {Dtype::kI32, shape});
    const std::int64_t row = shape.num_elements() / shape.dim(0);
    const Tensor part = tensor.rows(1, 3);
    EXPECT_EQ(part.dim(0), 2);
    EXPECT_EQ(part.shape().rank(), shape.rank());
    EXPECT_EQ(part.num_elements(), 2 * row);
    EXPECT_EQ(part.data<std::int32_t>(), data.data() + row);
    EXPECT_EQ(tensor.rows(2, 2).num_elements(), 0);
    EXPECT_THROW(tensor.rows(0, shape.dim(0) + 1), Error);
    EXPECT_THROW(tensor.rows(-1, 1), Error);
  }
}

TEST(Tensor, RefusesAnotherDtypeAndAnotherNumberOfElements) {
  std::array<float, 6> data = {};
  const Tensor tensor(data.data(), {Dtype::kF32, {2, 3}});
  EXPECT_TRUE(tensor.defined());
  EXPECT_FALSE(Tensor().defined());
  EXPECT_THROW(tensor.data<double>(), Error);
  EXPECT_EQ(tensor.reshaped({3, 2}).data<float>(), data.data());
  EXPECT_THROW(tensor.reshaped({4, 2}), Error);
}

}  // namespace
}  // namespace atl
