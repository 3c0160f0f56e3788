// The chat page in a real browser, where there is one: chat_page.py and, against the real server,
// served_page.py say what is looked at.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <string>

#include "train_fixture.h"

namespace atl::e2e {
namespace {

// Runs a script of this folder that needs a browser.
void expect_holds(const std::string& script, const std::string& argument = "") {
  const auto path = test_source_dir() / "tests" / "e2e" / script;
  const int status = std::system(fmt::format("python3 '{}' {}", path.string(), argument).c_str());
  constexpr int kSkipped = 77;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) {
    GTEST_SKIP() << "there is no Chromium; apt-get install chromium-headless-shell";
  }
  EXPECT_EQ(status, 0);
}

TEST(ChatPage, HoldsInChromium) {
  expect_holds("chat_page.py");
}

class ServedPage : public Train {};

TEST_F(ServedPage, HoldsInChromium) {
  std::string text = read_file(recipe());
  const std::string size = "vocab_size = 300\n";
  write_file(recipe(), text.erase(text.find(size), size.size()));
  trained("run",
          {"--train.steps=5", "--data.new_tokenizer=char", "--model.max_position_embeddings=8192"});
  write_file(path("chat.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}");
  const Program server({"serve", path("run"), "--port=0", "--chat-template", path("chat.jinja")},
                       path("said"));
  const std::regex line("serving run at (http://127\\.0\\.0\\.1:[0-9]+)");
  std::smatch match;
  std::string said;
  ASSERT_TRUE(soon([&] {
    said = std::filesystem::exists(path("said")) ? read_file(path("said")) : "";
    return std::regex_search(said, match, line);
  })) << server.errors();
  expect_holds("served_page.py", match[1]);
}

}  // namespace
}  // namespace atl::e2e
