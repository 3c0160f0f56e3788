// Parts of parameters, cut out and put back.

#include "atoll/nn/param.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/ops/testing.h"

namespace atl::nn {
namespace {

using test::OwnedTensor;
using ::testing::ElementsAre;

Param whole_param_of(Shape shape, std::vector<FileTensor> files) {
  Param param;
  param.name = "w";
  param.spec = {Dtype::kF32, shape};
  param.files = std::move(files);
  return param;
}

OwnedTensor<float> numbers(Shape shape) {
  OwnedTensor<float> tensor(shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<float>(i);
  return tensor;
}

TEST(Cut, RowsOfEachFileTensorAreOfThePart) {
  // Queries, keys and values of two rows each; rank 1 of 2 has one of each.
  const Param part =
      cut_param(whole_param_of({6, 3}, {{"q", 0, 2}, {"k", 2, 2}, {"v", 4, 2}}),
                {{{{0, 1}, {2, 1}, {4, 1}}, 0, 3}, {{{1, 1}, {3, 1}, {5, 1}}, 0, 3}}, 1);
  EXPECT_EQ(part.spec.shape, (Shape{3, 3}));
  ASSERT_EQ(part.files.size(), 3u);
  EXPECT_EQ(part.files[2].row_begin, 2);
  EXPECT_EQ(part.files[2].rows, 1);
  EXPECT_EQ(whole_param(part).files[2].row_begin, 4);
  auto whole = numbers({6, 3});
  OwnedTensor<float> mine({3, 3});
  copy_slice(part.cut->slices[1], whole, mine);
  EXPECT_THAT(mine.values, ElementsAre(3, 4, 5, 9, 10, 11, 15, 16, 17));
}

TEST(Cut, ColumnsGoBackToWhereTheyCameFrom) {
  auto whole = numbers({3, 5});
  OwnedTensor<float> again({3, 5}, -1);
  const std::vector<Slice> slices = {{{{0, 3}}, 0, 2}, {{{0, 3}}, 2, 3}};
  for (const Slice& slice : slices) {
    OwnedTensor<float> part({3, slice.num_columns});
    copy_slice(slice, whole, part);
    EXPECT_EQ(part[0], static_cast<float>(slice.column_begin));
    copy_slice_back(slice, part, again);
  }
  EXPECT_EQ(again, whole);
}

TEST(Cut, AVectorHasOneColumn) {
  const Param part =
      cut_param(whole_param_of({5}, {{"b", 0, 5}}), {{{{0, 2}}, 0, 1}, {{{2, 3}}, 0, 1}}, 1);
  EXPECT_EQ(part.spec.shape, Shape{3});
  auto whole = numbers({5});
  OwnedTensor<float> mine({3});
  copy_slice(part.cut->slices[1], whole, mine);
  EXPECT_THAT(mine.values, ElementsAre(2, 3, 4));
}

// Two ranks share rows, twice over: rank 2 holds what rank 0 holds.
TEST(Cut, KnowsTheFirstRankThatHoldsTheSame) {
  const std::vector<Slice> two = {{{{0, 1}}, 0, 3}, {{{1, 1}}, 0, 3}};
  std::vector<Slice> slices = two;
  slices.insert(slices.end(), two.begin(), two.end());
  const Param part = cut_param(whole_param_of({2, 3}, {{"w", 0, 2}}), slices, 3, 2);
  EXPECT_EQ(part.cut->neighbours, 2);
  EXPECT_EQ(part.cut->first_with_slice_of(0), 0);
  EXPECT_EQ(part.cut->first_with_slice_of(2), 0);
  EXPECT_EQ(part.cut->first_with_slice_of(3), 1);
}

// Of several axes along which others hold rows, the first rank along all of them counts these.
TEST(Param, CountsTheRowsThatItIsTheFirstToHold) {
  const Axis first = {2, 0}, second = {2, 1};
  Param param = whole_param_of({6, 3}, {{"w", 0, 6}});
  EXPECT_EQ(counted_rows(param), 6);
  param.shared_by = {{&first, 0}};
  EXPECT_EQ(counted_rows(param), 6);
  param.shared_by = {{&first, 0}, {&second, 4}};
  EXPECT_EQ(counted_rows(param), 4);
  param.shared_by = {{&second, 4}, {&second, 0}};
  EXPECT_EQ(counted_rows(param), 0);
}

TEST(Cut, ASliceThatDoesNotFitIsRefused) {
  auto whole = numbers({3, 5});
  OwnedTensor<float> part({3, 2});
  EXPECT_THROW(copy_slice({{{0, 3}}, 4, 2}, whole, part), Error);
  EXPECT_THROW(copy_slice({{{1, 3}}, 0, 2}, whole, part), Error);
  EXPECT_THROW(copy_slice({{{0, 2}}, 0, 2}, whole, part), Error);
}

}  // namespace
}  // namespace atl::nn
