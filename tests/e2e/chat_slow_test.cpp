// The chat page in a real browser, where there is one: chat_page.py says what is looked at.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "program.h"

namespace atl::e2e {
namespace {

TEST(ChatPage, HoldsInChromium) {
  const auto script = test_source_dir() / "tests" / "e2e" / "chat_page.py";
  const int status = std::system(fmt::format("python3 '{}'", script.string()).c_str());
  constexpr int kSkipped = 77;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) {
    GTEST_SKIP() << "there is no Chromium; apt-get install chromium-headless-shell";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace atl::e2e
