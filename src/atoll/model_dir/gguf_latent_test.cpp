#include "atoll/model_dir/gguf_latent.h"

#include <gmock/gmock.h>

#include "atoll/base/error.h"

namespace atl::model_dir {
namespace {

constexpr std::int64_t kHeads = 3;
constexpr nn::LatentShape kShape = {
    .kv_rank = 4, .content_dim = 2, .rotary_dim = 2, .value_dim = 3};

// Element (row, column) is 100 row + column.
ckpt::FloatRows numbered(std::vector<std::int64_t> shape) {
  ckpt::FloatRows rows;
  rows.name = "blk.3.attn_kv_b.weight";
  rows.shape = std::move(shape);
  rows.open = []() -> ckpt::RowReader {
    return [](std::int64_t row, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = 100 * static_cast<float>(row) + static_cast<float>(i);
      }
    };
  };
  return rows;
}

std::vector<float> all_of(const ckpt::FloatRows& rows) {
  std::vector<float> all;
  std::vector<float> row(static_cast<std::size_t>(rows.width()));
  const ckpt::RowReader read = rows.open();
  for (std::int64_t r = 0; r < rows.num_rows(); ++r) {
    read(r, row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST(GgufLatent, KeysAreTransposedHeadByHeadAndValuesAreNot) {
  const auto parts = split_key_value(numbered({kHeads * 5, 4}), kShape);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].name, "blk.3.attn_k_b.weight");
  EXPECT_EQ(parts[1].name, "blk.3.attn_v_b.weight");
  EXPECT_EQ(parts[0].shape, (std::vector<std::int64_t>{kHeads, 4, 2}));
  EXPECT_EQ(parts[1].shape, (std::vector<std::int64_t>{kHeads, 3, 4}));
  const std::vector<float> keys = all_of(parts[0]), values = all_of(parts[1]);
  // Head 1 has rows 5 to 9: its content in 5 and 6, its value in 7 to 9.
  EXPECT_EQ(std::vector<float>(keys.begin() + 8, keys.begin() + 12),
            (std::vector<float>{500, 600, 501, 601}));
  EXPECT_EQ(std::vector<float>(values.begin() + 12, values.begin() + 16),
            (std::vector<float>{700, 701, 702, 703}));
}

TEST(GgufLatent, BothComeTogetherAgain) {
  const auto whole = numbered({kHeads * 5, 4});
  const auto parts = split_key_value(whole, kShape);
  const ckpt::FloatRows joined = join_key_value(parts[0], parts[1]);
  EXPECT_EQ(joined.shape, whole.shape);
  EXPECT_EQ(all_of(joined), all_of(whole));
}

TEST(GgufLatent, ShapesThatDoNotFitAreErrors) {
  EXPECT_THROW(split_key_value(numbered({kHeads * 5 + 1, 4}), kShape), Error);
  EXPECT_THROW(split_key_value(numbered({kHeads * 5, 3}), kShape), Error);
  const auto parts = split_key_value(numbered({kHeads * 5, 4}), kShape);
  EXPECT_THROW(join_key_value(parts[1], parts[0]), Error);
}

}  // namespace
}  // namespace atl::model_dir
