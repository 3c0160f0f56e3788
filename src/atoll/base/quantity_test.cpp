#include "atoll/base/quantity.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(Quantity, CountsHaveThousandsSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(-100), "-100");
}

TEST(Quantity, OneIslandIsNotOneIslands) {
  EXPECT_EQ(counted(1, "island"), "1 island");
  EXPECT_EQ(counted(0, "island"), "0 islands");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(counted(1, "micro-batch"), "1 micro-batch");
  EXPECT_EQ(counted(1000, "process"), "1,000 processes");
  EXPECT_EQ(counted(2, "copy", "copies"), "2 copies");
  EXPECT_EQ(counted(1, "copy", "copies"), "1 copy");
}

TEST(Quantity, BytesAreReadAtOneGlance) {
  EXPECT_EQ(format_bytes(1), "1 byte");
  EXPECT_EQ(format_bytes(1000), "1000 bytes");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((std::uint64_t{1} << 30) - 1), "1.0 GiB");
}

}  // namespace
}  // namespace atl
