#include "atoll/parallel/layout/param_ranges.h"

#include <gtest/gtest.h>

namespace atl::parallel {
namespace {

nn::Param fused() {
  nn::Param param;
  param.name = "q+k+v";
  param.spec = {Dtype::kF32, {10, 5}};
  param.decay = true;
  param.files = {{"q", 0, 6, false}, {"k", 6, 2, false}, {"v", 8, 2, false}};
  return param;
}

std::vector<optim::ParamRange> ranges_of(const nn::Param& param) {
  std::vector<optim::ParamRange> ranges;
  append_ranges(param, 32, 64, ranges);
  return ranges;
}

TEST(ParamRanges, AFusedWeightIsAMatrixForEachFileTensorAndThePaddingIsTheLasts) {
  const auto ranges = ranges_of(fused());
  ASSERT_EQ(ranges.size(), 3U);
  const std::int64_t begins[] = {32, 62, 72};
  const std::int64_t counts[] = {30, 10, 24};
  const std::int64_t rows[] = {6, 2, 2};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ranges[i].begin, begins[i]);
    EXPECT_EQ(ranges[i].count, counts[i]);
    EXPECT_EQ(ranges[i].rows, rows[i]);
    EXPECT_EQ(ranges[i].cols, 5);
    EXPECT_TRUE(ranges[i].matrix);
    EXPECT_TRUE(ranges[i].decay);
  }
}

TEST(ParamRanges, EmbeddingsPositionsAndVectorsAreNoMatrices) {
  nn::Param embedding = fused();
  embedding.is_embedding = true;
  nn::Param position = fused();
  position.is_position = true;
  nn::Param vector = fused();
  vector.spec = {Dtype::kF32, {50}};
  for (const nn::Param& param : {embedding, position, vector}) {
    const auto ranges = ranges_of(param);
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_EQ(ranges[0].begin, 32);
    EXPECT_EQ(ranges[0].count, 64);
    EXPECT_FALSE(ranges[0].matrix);
    EXPECT_TRUE(ranges[0].decay);
  }
}

TEST(ParamRanges, RefusesFileTensorsThatAreNotTheRows) {
  nn::Param hole = fused();
  hole.files[1].row_begin = 7;
  EXPECT_THROW(ranges_of(hole), Error);
  nn::Param shorter = fused();
  shorter.files.pop_back();
  EXPECT_THROW(ranges_of(shorter), Error);
}

}  // namespace
}  // namespace atl::parallel
