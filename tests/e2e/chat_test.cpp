// `atoll chat`: what is said through a pipe and at a terminal.

#include <fcntl.h>
#include <gmock/gmock.h>

#include "terminal.h"
#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::TerminalProgram;
using e2e::Train;
using ::testing::HasSubstr;

class Chat : public Train {
 protected:
  // With one token a character, so that every text is one of the model's.
  void SetUp() override {
    Train::SetUp();
    std::string text = read_file(recipe());
    const std::string size = "vocab_size = 300\n";
    write_file(recipe(), text.erase(text.find(size), size.size()));
    trained("run", {"--train.steps=5", "--data.new_tokenizer=char", "--train.context=128"});
    write_file(path("chat.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}");
  }

  std::vector<std::string> words(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"chat", path("run"), "--chat-template",
                                          path("chat.jinja")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // What comes of these lines through a pipe.
  Finished say(const std::string& lines, const std::vector<std::string>& more = {}) const {
    write_file(path("said"), lines);
    const int before = ::dup(STDIN_FILENO);
    const int file = ::open(path("said").c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
    std::vector<std::string> arguments = words(more);
    arguments.push_back("--max-tokens=12");
    Finished finished = atoll(arguments);
    ::dup2(before, STDIN_FILENO);
    ::close(before);
    return finished;
  }
};

TEST_F(Chat, EachLineIsAnsweredAndTheConversationSavedAndLoaded) {
  const std::string saved = path("said.json");
  const Finished first = say("the sea\nand the ring\n/save " + saved + "\n", {"--stats"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(std::ranges::count(first.out, '\n'), 2) << first.out;
  EXPECT_THAT(first.err, HasSubstr("12 tokens, "));
  const std::string conversation = read_file(saved);
  EXPECT_THAT(conversation, HasSubstr(R"({"messages":[{"role":"user","content":"the sea"},)"
                                      R"({"role":"assistant","content":")"));

  const Finished on = say("/save " + path("again.json") + "\n/regenerate\n", {"--load", saved});
  ASSERT_EQ(on.exit_code, 0) << on.err;
  EXPECT_EQ(read_file(path("again.json")), conversation);

  // The same words, the same answers.
  EXPECT_EQ(say("the sea\nand the ring\n").out, first.out);
  EXPECT_NE(say("the sea\nand the ring\n", {"--seed=5"}).out, first.out);
}

TEST_F(Chat, WhatCannotBeIsRefused) {
  EXPECT_THAT(error_line(say("/dance\n")), HasSubstr("/dance is no command"));
  EXPECT_THAT(error_line(say("/set temperature=hot\n")), HasSubstr("has to be a number"));
  EXPECT_THAT(error_line(say("/regenerate\n")), HasSubstr("there is no answer yet"));
  EXPECT_THAT(error_line(say(std::string(200, 'a') + "\n")), HasSubstr("the conversation has 2"));
  write_file(path("bad.json"), "[1]");
  EXPECT_THAT(error_line(say("x\n", {"--load", path("bad.json")})),
              HasSubstr("is no conversation"));
}

TEST_F(Chat, AtATerminalKeysEditAndCtrlCEndsAnAnswer) {
  TerminalProgram program(words({"--max-tokens=100"}), 60);
  const auto shows = [](const std::string& text) {
    return [text](const std::string& written) { return written.find(text) != std::string::npos; };
  };
  // The editor has the terminal from here on, for the n-th time; before, keys are the system's.
  const auto edits = [](int times) {
    return [times](const std::string& written) {
      int count = 0;
      const std::string begin = "\x1b[?2004h";
      for (std::size_t at = 0; (at = written.find(begin, at)) != std::string::npos; ++at) ++count;
      return count >= times;
    };
  };
  program.read_until(edits(1));
  // A line that is begun is taken back, and the next one is there again with the arrow.
  program.type("/set temperatur\x15/set seed=7\r");
  program.read_until(shows("/set seed=7\x1b[K\r\n"));
  program.read_until(edits(2));
  program.type(
      "\x1b[A\x7f"
      "8\r");
  program.read_until(edits(3));
  program.type("/set\r");
  program.read_until(shows("seed=8 max_tokens=100"));
  program.read_until(edits(4));
  program.type("\x03");
  program.read_until(edits(5));
  program.type("/exit\r");
  EXPECT_EQ(program.wait().exit_code, 0);
}

}  // namespace
}  // namespace atl
