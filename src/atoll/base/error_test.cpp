#include "atoll/base/error.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

TEST(Error, StaysOneLineWhateverTheValuesInIt) {
  const std::string name = "a\nb\r\t\x1b[2J\x7f";
  EXPECT_STREQ(user_error("no key \"{}\"", name).what(), "no key \"a\\nb\\x0d\\t\\x1b[2J\\x7f\"");
}

TEST(Error, KeepsWhatIsNotAsciiAndWhatWasShownBefore) {
  EXPECT_STREQ(user_error("Größe \xff \\n").what(), "Größe \xff \\n");
}

}  // namespace
}  // namespace atl
