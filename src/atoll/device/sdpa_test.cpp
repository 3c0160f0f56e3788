#include "atoll/device/sdpa.h"

#include <gmock/gmock.h>

#include <set>

namespace atl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four query heads share two of keys and values; rows of 5 sequences of 7.
SdpaCall small(bool is_backward) {
  return {.is_backward = is_backward,
          .batch = 5,
          .heads = 4,
          .kv_heads = 2,
          .length = 7,
          .head_dim = 8,
          .scale = 0.5F};
}

TEST(SdpaCalls, ReadRowsOfQueriesKeysAndValuesAsTheyLie) {
  constexpr std::int64_t kRow = (4 + 2 + 2) * 8, kOutRow = 4 * 8;
  std::set<SdpaOperand> seen;
  for (const SdpaTensor& tensor : sdpa_tensors(small(true))) {
    SCOPED_TRACE(sdpa_name(tensor.operand));
    EXPECT_TRUE(seen.insert(tensor.operand).second);
    using enum SdpaOperand;
    switch (tensor.operand) {
      case kQ:
      case kDq:
        EXPECT_THAT(tensor.dims, ElementsAre(5, 4, 7, 8));
        EXPECT_THAT(tensor.strides, ElementsAre(7 * kRow, 8, kRow, 1));
        break;
      case kK:
      case kV:
      case kDk:
      case kDv:
        EXPECT_THAT(tensor.dims, ElementsAre(5, 2, 7, 8));
        EXPECT_THAT(tensor.strides, ElementsAre(7 * kRow, 8, kRow, 1));
        break;
      case kOut:
      case kDout:
        EXPECT_THAT(tensor.dims, ElementsAre(5, 4, 7, 8));
        EXPECT_THAT(tensor.strides, ElementsAre(7 * kOutRow, 8, kOutRow, 1));
        break;
      case kStats:
        EXPECT_THAT(tensor.dims, ElementsAre(5, 4, 7, 1));
        EXPECT_THAT(tensor.strides, ElementsAre(28, 7, 1, 1));
        break;
    }
    EXPECT_EQ(tensor.is_f32, tensor.operand == kStats);
    EXPECT_EQ(tensor.is_written, tensor.operand >= kDq);
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(SdpaCalls, WriteWhatTheGradientReads) {
  for (const SdpaTensor& tensor : sdpa_tensors(small(false))) {
    EXPECT_EQ(tensor.is_written,
              tensor.operand == SdpaOperand::kOut || tensor.operand == SdpaOperand::kStats);
  }
  EXPECT_EQ(sdpa_tensors(small(false)).size(), 5u);
}

TEST(SdpaCalls, TakeAWorkspaceOfTheSquareOfTheirRows) {
  SdpaCall call = small(true);
  call.length = 1024;
  const std::size_t one = sdpa_workspace_bytes(call);
  EXPECT_GE(one, 2u * 5 * 4 * 1024 * 1024);
  call.length = 2048;
  EXPECT_GT(sdpa_workspace_bytes(call), 3 * one);
  call.is_backward = false;
  EXPECT_LT(sdpa_workspace_bytes(call), std::size_t{1} << 20);
}

TEST(SdpaCalls, AreForOneArchitecture) {
  EXPECT_EQ(sdpa_architecture_problem(9, 0), "");
  EXPECT_THAT(sdpa_architecture_problem(8, 0), HasSubstr("compute capability 8.0"));
  EXPECT_THAT(sdpa_architecture_problem(10, 0), HasSubstr("9.0 alone"));
}

}  // namespace
}  // namespace atl
