#include "atoll/cli/bench_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Ceilings kCeilings = {.flops = 100e9, .bytes = 10e9};

ops::OpProfile::Row row(const char* op, double flops, double bytes, double seconds) {
  return {.op = op,
          .implementation = "cpu",
          .cost = {.flops = flops, .bytes = bytes, .shape = {4, 8}},
          .calls = 2,
          .seconds = seconds};
}

TEST(BenchTable, TheHigherCeilingBoundsACall) {
  // 1e9 FLOP take 10 ms, 1e7 bytes 1 ms: arithmetic bounds it.
  EXPECT_DOUBLE_EQ(roofline_fraction(row("product", 1e9, 1e7, 0.040), kCeilings), 0.5);
  EXPECT_DOUBLE_EQ(roofline_fraction(row("sum", 0, 1e8, 0.080), kCeilings), 0.25);
}

TEST(BenchTable, RowsAreSortedByTimeAndTheRestIsNamed) {
  const std::vector rows = {row("sum", 0, 1e8, 0.1), row("product", 1e9, 1e7, 0.3),
                            row("tiny", 0, 1, 1e-4)};
  const std::string text = op_table(rows, kCeilings, std::vector<double>{0.25, 0.25});
  EXPECT_LT(text.find("product"), text.find("sum"));
  EXPECT_THAT(text, Not(HasSubstr("tiny")));
  EXPECT_THAT(text, HasSubstr("others, each below 0.1%"));
  // 500 ms in two steps, 400.1 of them named.
  EXPECT_THAT(text, HasSubstr("49.95   20.0\n"));  // between ops
  EXPECT_THAT(text, HasSubstr("150.00   60.0"));   // the product
}

}  // namespace
}  // namespace atl::cli
