#include "atoll/base/processes/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace atl {
namespace {

using ::testing::ElementsAre;

TEST(LineReader, TakesCarriageReturnsOffTheEnds) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Fd from(ends[0]);
  Fd to(ends[1]);
  const std::string text = "Host key verification failed.\r\nplain\na\rb\n\r\nno newline\r";
  ASSERT_EQ(::write(to.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  to.close();
  std::vector<std::string> lines;
  const auto take = [&](std::string_view line) { lines.emplace_back(line); };
  LineReader reader;
  reader.read(from, take);
  reader.finish(take);
  EXPECT_THAT(lines,
              ElementsAre("Host key verification failed.", "plain", "a\rb", "", "no newline"));
}

}  // namespace
}  // namespace atl
