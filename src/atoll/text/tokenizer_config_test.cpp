// What the files beside a tokenizer say: which token ends a text, and what goes round one.

#include "atoll/text/tokenizer_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/text/new_tokenizers.h"
#include "atoll/text/tokenizer.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextFrames : public ::testing::Test {
 protected:
  TextFrames() {
    std::string pattern = fs::temp_directory_path() / "atoll-frame-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    const std::vector<std::string> special = {"<|im_end|>", "<|done|>"};
    const Tokenizer made = make_byte_tokenizer(special);
    end_ = *made.id_of("<|endoftext|>");
    turn_ = *made.id_of("<|im_end|>");
    done_ = *made.id_of("<|done|>");
    write("tokenizer.json", made.file_content());
  }
  ~TextFrames() override { fs::remove_all(directory_); }
  void write(const char* name, std::string_view content) const {
    write_file(directory_ / name, content);
  }
  void write_eos(const char* name, const std::string& ids) const {
    write(name, fmt::format("{{\"eos_token_id\": {}}}", ids));
  }
  std::optional<std::int32_t> end() const { return Tokenizer::load(directory_).end_of_text(); }
  std::string problem() const {
    try {
      (void)Tokenizer::load(directory_);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2) << error.what();
      return error.what();
    }
    return "none";
  }

  fs::path directory_;
  std::int32_t end_ = 0, turn_ = 0, done_ = 0;
};

TEST_F(TextFrames, TheFilesSayWhatEndsATextBeforeAnyName) {
  EXPECT_EQ(end(), end_);
  write_eos("config.json", std::to_string(turn_));
  EXPECT_EQ(end(), turn_);
  write_eos("generation_config.json", fmt::format("[{}, {}]", done_, turn_));
  EXPECT_EQ(end(), done_);
  write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_end|>", "lstrip": false}})");
  EXPECT_EQ(end(), turn_);
  write("tokenizer_config.json", R"({"eos_token": "<|done|>"})");
  EXPECT_EQ(end(), done_);
  EXPECT_EQ(Tokenizer::load(directory_ / "tokenizer.json").end_of_text(), done_);
  write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(end(), turn_);
}

// A configuration copied from a larger model has ids that this one lacks.
TEST_F(TextFrames, ATokenThatThereIsNotEndsNothing) {
  write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  write_eos("generation_config.json", "[50256, -1]");
  EXPECT_EQ(end(), end_);
  write_eos("generation_config.json", fmt::format("[50256, {}]", turn_));
  EXPECT_EQ(end(), turn_);
}

TEST_F(TextFrames, ACorpusSaysWhatWasDone) {
  write("tokenizer_config.json", R"({"eos_token": "<|done|>"})");
  write("corpus.json", R"({"tokenizer": {"file": "tokenizer.json"}})");
  EXPECT_EQ(end(), done_) << "of an older program";
  write("corpus.json",
        fmt::format(R"({{"tokenizer": {{"end_of_text": {}, "before": [1], "after": [2, 3]}}}})",
                    turn_));
  const Tokenizer tokenizer = Tokenizer::load(directory_);
  EXPECT_EQ(tokenizer.end_of_text(), turn_);
  EXPECT_THAT(tokenizer.tokens_before(), ElementsAre(1));
  EXPECT_THAT(tokenizer.encode("", {.add_special = true}), ElementsAre(1, 2, 3));
  write("corpus.json", R"({"tokenizer": {"end_of_text": null, "before": [], "after": []}})");
  EXPECT_EQ(end(), std::nullopt);
  write("corpus.json", R"({"tokenizer": {"end_of_text": 9999, "before": [], "after": []}})");
  EXPECT_THROW((void)end(), Error);
  write("corpus.json", R"({"tokenizer": {"end_of_text": "x", "before": [], "after": []}})");
  EXPECT_THAT(problem(), HasSubstr("corpus.json is damaged"));
}

TEST_F(TextFrames, WhatCannotBeReadIsRefusedByName) {
  const char* const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                               "generation_config.json", "config.json"};
  for (const char* name : names) {
    const std::string path = (directory_ / name).string();
    for (const char* content : {"", "{", "[]", "5", "{} {}", "{\"a\": 1,}", "\xff\xfe{"}) {
      write(name, content);
      EXPECT_THAT(problem(), HasSubstr(path)) << content;
    }
    write(name, std::string("{}\0", 3));
    EXPECT_THAT(problem(), AllOf(HasSubstr(path), HasSubstr("NUL")));
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_THAT(problem(), AllOf(HasSubstr(path), HasSubstr("directory")));
    fs::remove(path);
    fs::create_symlink("/dev/zero", path);
    EXPECT_THAT(problem(), HasSubstr(path + " is a device"));
    fs::remove(path);
    write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
    EXPECT_THAT(problem(), HasSubstr(path + " is a Git LFS pointer"));
    fs::remove(path);
  }
  for (const char* name : {"generation_config.json", "config.json"}) {
    for (const char* ids : {"-7", "1.0", "\"7\"", "true", "[[7]]", "18446744073709551615"}) {
      write_eos(name, ids);
      EXPECT_THAT(problem(), AllOf(HasSubstr(name), HasSubstr("\"eos_token_id\" is")));
    }
    fs::remove(directory_ / name);
  }
  write("tokenizer_config.json", R"({"eos_token": 5})");
  EXPECT_THAT(problem(), HasSubstr("\"eos_token\" must be a token's text"));
}

}  // namespace
}  // namespace atl
