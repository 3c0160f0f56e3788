// The pages: the commands of README and docs/, each in its page's order, and what makes the
// figures.

#include <fmt/format.h>

#include <cstdlib>
#include <iostream>

#include "program.h"

namespace atl::e2e {
namespace {

// Expects that a Python script ends with 0, and shows what it printed.
void expect_passes(const std::string& arguments) {
  const TemporaryDirectory directory;
  const std::string log = (directory.path / "log").string();
  const std::string command =
      fmt::format("PYTHONDONTWRITEBYTECODE=1 python3 {} >'{}' 2>&1", arguments, log);
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::cout << read_file(log);
}

TEST(Docs, EveryCommandBlockDoesWhatItsPageSays) {
  expect_passes(fmt::format("'{}' '{}'", (test_source_dir() / "tests/e2e/docs.py").string(),
                            test_program().string()));
}

TEST(Docs, ChartsHaveTheNumbersOfTheirTables) {
  expect_passes(fmt::format("-m unittest discover -s '{}' -p '*_test.py'",
                            (test_source_dir() / "tools/docs").string()));
}

}  // namespace
}  // namespace atl::e2e
