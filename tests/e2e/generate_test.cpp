// Text that is longer than the model can see at once.

#include "train_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Train;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Generate : public Train {
 protected:
  // With one token a character.
  void SetUp() override {
    Train::SetUp();
    std::string text = read_file(recipe());
    const std::string size = "vocab_size = 300\n";
    write_file(recipe(), text.erase(text.find(size), size.size()));
  }

  Finished generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"generate", path("run"), "--stats", "--seed=3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished;
  }
};

TEST_F(Generate, AsManyTokensComeOutAsAreAskedFor) {
  // A context of 32 positions, rotary and learnt ones.
  for (const char* family : {"llama", "gpt2"}) {
    trained("run", {"--train.steps=5", "--data.new_tokenizer=char", "--model.num_key_value_heads=0",
                    std::string("--model.family=") + family});
    const Finished fits = generate({"--prompt=the sea is", "--max-tokens=20"});
    EXPECT_THAT(fits.err, AllOf(HasSubstr("20 tokens in "), Not(HasSubstr("longer than"))));
    const Finished slides = generate({"--prompt=the sea is", "--max-tokens=200"});
    EXPECT_THAT(slides.err, AllOf(HasSubstr("200 tokens in "),
                                  HasSubstr("the text is longer than the model's 32 positions")));
    EXPECT_EQ(slides.out.size(), 10U + 200U + 1U);
    EXPECT_THAT(slides.out, StartsWith(fits.out.substr(0, 30)));
    // Of a prompt that is longer, the end counts.
    const std::string end = "and a ring of islands lies there";
    ASSERT_EQ(end.size(), 32U);
    const std::string much = "there is a wide sea ";
    const Finished of_end = generate({"--prompt=" + end, "--max-tokens=40", "--no-prompt"});
    const Finished of_all =
        generate({"--prompt=" + much + end, "--max-tokens=40", "--no-prompt", "--greedy"});
    EXPECT_EQ(of_all.out,
              generate({"--prompt=" + end, "--max-tokens=40", "--no-prompt", "--greedy"}).out);
    EXPECT_EQ(of_end.out.size(), 41U);
    EXPECT_THAT(of_all.err, HasSubstr("warning: the prompt has 52 tokens and the model 32 "
                                      "positions: it sees the last 32 of them"));
    std::filesystem::remove_all(path("run"));
  }
}

// Standard input is `text` while this lives.
class Input {
 public:
  explicit Input(const std::string& text, const std::string& path) : before_(::dup(STDIN_FILENO)) {
    write_file(path, text);
    const int file = ::open(path.c_str(), O_RDONLY);
    ::dup2(file, STDIN_FILENO);
    ::close(file);
  }
  ~Input() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

 private:
  int before_;
};

TEST_F(Generate, AMessageComesFromStandardInputWhereNoneIsGiven) {
  trained("run", {"--train.steps=1", "--data.new_tokenizer=char"});
  write_file(path("chat.jinja"), "{% for m in messages %}{{ m.content }} {% endfor %}");
  const std::vector<std::string> chat = {"--chat", "--chat-template", path("chat.jinja"),
                                         "--greedy", "--max-tokens=12"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), chat.begin(), chat.end());
    return generate(more).out;
  };
  const std::string answer = with({"--prompt=the sea is"});
  {
    const Input input("the sea is\n", path("input"));
    EXPECT_EQ(with({}), answer);
  }
  std::vector<std::string> words = {"generate", path("run")};
  words.insert(words.end(), chat.begin(), chat.end());
  {
    const Input input("\u2603", path("input"));
    EXPECT_EQ(with({"--prompt=the sea is"}), answer);
    EXPECT_THAT(error_line(atoll(words)), HasSubstr("\u2603"));
  }
  const Input input("", path("input"));
  const Finished empty = atoll(words);
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(error_line(empty), HasSubstr("standard input is empty; give the message"));
}

TEST_F(Train, WhatCannotBeTrainedIsRefusedBeforeTheTextIsRead) {
  const Finished large = train("large", {"--model.hidden_size=262144"});
  EXPECT_EQ(large.exit_code, 1);
  EXPECT_THAT(error_line(large),
              ::testing::ContainsRegex("the run is planned to take [0-9.]+ TiB of memory at least, "
                                       "and [0-9.]+ [MGT]iB may be used here"));
  EXPECT_FALSE(std::filesystem::exists(path("large"))) << "nothing was made for it";

  const Finished blind = train("blind", {"--data.held_out=0", "--eval.every=5"});
  EXPECT_EQ(blind.exit_code, 2);
  EXPECT_THAT(error_line(blind), HasSubstr("no text is held out to evaluate on"));
  EXPECT_FALSE(std::filesystem::exists(path("blind")));

  trained("base", {"--train.steps=1"});
  const std::string plain = path("plain.toml");
  write_file(plain, fmt::format("[run]\ndir = \"{}\"\n[data]\ntext = [\"{}\"]\n[train]\n"
                                "context = 32\nbatch_size = 4\nmicro_batch = 2\nsteps = 4\n"
                                "[optim]\nwarmup_steps = 1\n",
                                path("tuned"), path("text.txt")));
  const Finished lora = atoll({"train", plain, "--model.from=" + path("base"), "--lora.rank=4",
                               "--lora.targets=q_project"});
  EXPECT_EQ(lora.exit_code, 2);
  EXPECT_THAT(error_line(lora),
              AllOf(HasSubstr("LoRA target \"q_project\" matches no module"), HasSubstr("q_proj")));
  EXPECT_FALSE(std::filesystem::exists(path("tuned")));
}

}  // namespace
}  // namespace atl
