// What the chat page computes, where there is Node: chat_functions.js and its like say what.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "program.h"

namespace atl::e2e {
namespace {

TEST(ChatPage, FunctionsHoldInNode) {
  if (std::system("node --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "there is no Node; apt-get install nodejs";
  }
  const auto script = test_source_dir() / "tests" / "e2e" / "chat_node.mjs";
  EXPECT_EQ(std::system(fmt::format("node '{}'", script.string()).c_str()), 0);
}

}  // namespace
}  // namespace atl::e2e
