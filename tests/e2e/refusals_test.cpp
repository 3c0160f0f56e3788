// What the program says of files and settings that it does not take: the file by name, one line,
// exit code 2, and nothing that hangs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "program.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::Finished;
using e2e::TemporaryDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Refusals : public ::testing::Test {
 protected:
  Refusals() { fs::copy(test_source_dir() / "tests/golden/families/gpt2", model_); }

  // The line of the error.
  std::string refused(const std::vector<std::string>& words) const {
    const Finished finished = atoll(words);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, AllOf(Not(HasSubstr("exception")), Not(HasSubstr("filesystem"))));
    return finished.err;
  }
  std::string plan(const std::vector<std::string>& settings) const {
    std::vector<std::string> words = {"plan", "--run.dir=never-made", "--data.text=none.txt",
                                      "--train.context=8"};
    words.insert(words.end(), settings.begin(), settings.end());
    return refused(words);
  }

  TemporaryDirectory directory_;
  fs::path model_ = directory_.path / "model";
};

TEST_F(Refusals, ARecipeOfTwentyThousandPartsInAKey) {
  std::string key = "a";
  for (int i = 1; i < 20'000; ++i) key += ".a";
  const fs::path recipe = directory_.path / "deep.toml";
  write_file(recipe, "[train]\nsteps = 2\n" + key + " = 1\n");
  EXPECT_THAT(refused({"plan", recipe.string()}), HasSubstr("deep.toml:3: a key of more than"));
}

TEST_F(Refusals, WhatIsNoRegularFile) {
  const fs::path pipe = directory_.path / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refused({"plan", pipe.string()}), HasSubstr(pipe.string() + " is a pipe"));
  EXPECT_THAT(refused({"train", "/dev/zero"}), HasSubstr("/dev/zero is a device"));
  EXPECT_THAT(plan({"--model.config=" + pipe.string()}), HasSubstr(pipe.string() + " is a pipe"));
  ASSERT_EQ(::mkfifo((model_ / "tokenizer.json").c_str(), 0600), 0);
  EXPECT_THAT(refused({"generate", model_.string()}), HasSubstr("tokenizer.json is a pipe"));
  fs::remove(model_ / "config.json");
  ASSERT_EQ(::mkfifo((model_ / "config.json").c_str(), 0600), 0);
  EXPECT_THAT(refused({"doctor", model_.string()}), HasSubstr("config.json is a pipe"));
  EXPECT_THAT(refused({"tokenize", pipe.string(), "--out", (directory_.path / "out").string()}),
              HasSubstr("is a pipe"));
}

TEST_F(Refusals, ADamagedFileBesideATokenizer) {
  write_file(model_ / "tokenizer.json", "{");
  EXPECT_THAT(refused({"generate", model_.string()}), HasSubstr("tokenizer.json: not valid JSON"));
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) {
    write_file(model_ / name, "{\"eos_token\": ");
    EXPECT_THAT(refused({"generate", model_.string()}), HasSubstr(name));
    fs::remove(model_ / name);
    fs::create_directory(model_ / name);
    EXPECT_THAT(refused({"generate", model_.string()}), HasSubstr(name));
    fs::remove(model_ / name);
  }
  write_file(model_ / "config.json", "{");
  EXPECT_THAT(refused({"generate", model_.string()}), HasSubstr("config.json: not valid JSON"));
  write_file(model_ / "model.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  write_file(model_ / "config.json",
             read_file(test_source_dir() / "tests/golden/families/gpt2/config.json"));
  EXPECT_THAT(refused({"export", model_.string(), "--out", (directory_.path / "out").string()}),
              HasSubstr("model.safetensors is a Git LFS pointer"));
}

TEST_F(Refusals, ALinkToItselfIsNamed) {
  const fs::path loop = directory_.path / "loop";
  fs::create_symlink(loop, loop);
  const auto named =
      AllOf(HasSubstr(loop.string()), HasSubstr("Too many levels of symbolic links"));
  EXPECT_THAT(refused({"doctor", loop.string()}), named);
  EXPECT_THAT(refused({"eval", loop.string()}), named);
  EXPECT_THAT(refused({"generate", loop.string()}), named);
  EXPECT_THAT(refused({"export", loop.string(), "--out", (directory_.path / "x").string()}), named);
  EXPECT_THAT(refused({"import", loop.string(), "--out", (directory_.path / "x").string()}), named);
  EXPECT_THAT(refused({"tokenize", loop.string(), "--out", (directory_.path / "x").string()}),
              named);
  EXPECT_THAT(plan({"--model.from=" + loop.string()}), named);
  EXPECT_THAT(plan({"--data.tokenizer=" + loop.string()}), named);
}

TEST_F(Refusals, WhatAConfigMayNotSay) {
  const std::string good = read_file(model_ / "config.json");
  const auto inspect = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_file(model_ / "config.json", text);
    return refused({"doctor", model_.string()});
  };
  const std::string file = (model_ / "config.json").string();
  EXPECT_THAT(
      inspect("\"eos_token_id\": null", "\"eos_token_id\": -7"),
      AllOf(HasSubstr(file + ": \"eos_token_id\" must be a token's id"), HasSubstr("not -7")));
  EXPECT_THAT(inspect("\"gpt2\"", "\"gemma\""), HasSubstr(file + ": \"model_type\" is \"gemma\""));
  write_file(model_ / "config.json", good + std::string("\0more", 5));
  const Finished nul = atoll({"doctor", model_.string()});
  EXPECT_NE(nul.exit_code, 0);
  EXPECT_THAT(nul.err, AllOf(HasSubstr(file + ": not valid JSON: line"), HasSubstr("a NUL byte")));
}

TEST_F(Refusals, AModelWhoseSizesAskForMoreMemoryThanThereIs) {
  const std::string file = (model_ / "config.json").string();
  std::string text = read_file(file);
  const std::size_t at = text.find("\"vocab_size\": ");
  ASSERT_NE(at, text.npos);
  text.insert(at + 14, "100000000");  // before its digits
  write_file(file, text);
  write_file(model_ / "tokenizer.json",
             R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
                 "normalizer": null, "pre_tokenizer": null, "post_processor": null,
                 "decoder": {"type": "Fuse"},
                 "model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "b": 1}}})");
  const auto refusal = [](const std::vector<std::string>& words) {
    const Finished finished = atoll(words);
    EXPECT_EQ(finished.exit_code, 1) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    return finished.err;
  };
  const auto named = HasSubstr("the model is that of " + file + ": vocab_size is 100000000101");
  EXPECT_THAT(refusal({"generate", model_.string(), "--prompt", "a"}), named);
  const fs::path prose = directory_.path / "prose.txt";
  write_file(prose, std::string(4000, 'a'));
  EXPECT_THAT(refusal({"eval", model_.string(), "--text", prose.string()}), named);
  EXPECT_THAT(
      refusal({"train", "--model.from=" + model_.string(), "--train.context=8",
               "--data.text=" + prose.string(), "--run.dir=" + (directory_.path / "run").string()}),
      named);
}

TEST_F(Refusals, WhatTrainWouldRefuseOfSettings) {
  EXPECT_THAT(plan({"--outer.islands=2", "--outer.codec=int7"}),
              HasSubstr("outer.codec (\"int7\""));
  EXPECT_THAT(plan({"--outer.codec=topk:9999/16"}), HasSubstr("outer.codec (\"topk:9999/16\""));
  EXPECT_THAT(plan({"--eval.every=5", "--data.held_out=0"}), HasSubstr("no text is held out"));
  EXPECT_THAT(plan({"--model.hidden_size=2147483648"}), HasSubstr("beyond any machine"));
  EXPECT_THAT(plan({"--data.chat_template=none.jinja"}), HasSubstr("there is no such file"));
  EXPECT_THAT(plan({"--data.chat_template=" + model_.string()}), HasSubstr("name the Jinja file"));
}

}  // namespace
}  // namespace atl
