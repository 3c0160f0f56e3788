#include "atoll/cli/bench/table.h"

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

const std::vector<Figure> kFigures = {
    {"save", 1.5, "GB/s", 3, "a plain copy", 0.5, "0.100 s"},
    {"a longer name", 250, "GFLOP/s", 200, "multiply-adds", 1.25, ""},
};

TEST(BenchTable, FiguresStandInColumnsBesideTheirLimits) {
  EXPECT_EQ(figure_table(kFigures),
            "                    measured  limit                   %\n"
            "save                1.5 GB/s  3.0  a plain copy      50  0.100 s\n"
            "a longer name  250.0 GFLOP/s  200.0  multiply-adds  125\n");
}

TEST(BenchTable, FiguresForProgramsAreOneLine) {
  const std::string line = figures_to_json(kFigures);
  EXPECT_THAT(line, HasSubstr(R"({"what":"save","value":1.5,"unit":"GB/s","limit":3.0,)"
                              R"("limit_is":"a plain copy","percent":50.0,"note":"0.100 s"})"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace atl::cli
