#include "atoll/model_dir/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StopTokens : public ::testing::Test {
 protected:
  StopTokens() {
    fs::create_directory(directory_);
    fs::copy_file(test_source_dir() / "tests/golden/families/gpt2/config.json",
                  directory_ / "config.json");
  }
  ~StopTokens() override { fs::remove_all(directory_); }

  std::vector<std::int32_t> with(const std::string& ids) const {
    write_file(directory_ / "generation_config.json", "{\"eos_token_id\": " + ids + "}");
    return stop_tokens(directory_, letters_);
  }
  void write_config(const std::string& ids) const {
    std::string text = read_file(directory_ / "config.json");
    const std::string from = "\"eos_token_id\": null";
    text.replace(text.find(from), from.size(), "\"eos_token_id\": " + ids);
    write_file(directory_ / "config.json", text);
  }
  static Tokenizer letters() {
    const std::string_view letters = "ab";
    return make_char_tokenizer(std::span(&letters, 1));
  }

  fs::path directory_ = fs::temp_directory_path() / fmt::format("atoll-stops-{}", ::getpid());
  const Tokenizer letters_ = letters();
};

TEST_F(StopTokens, AreThoseThatTransformersTakes) {
  EXPECT_THAT(with("7"), ElementsAre(7));
  EXPECT_THAT(with("[100, 7]"), ElementsAre(7, 100));
  EXPECT_THAT(with("[-1, 0]"), ElementsAre(0));
  write_config("[4, 5]");
  EXPECT_THAT(with("7"), ElementsAre(7)) << "config.json counts only without them";
  for (const char* none : {"null", "-1", "[]"}) EXPECT_THAT(with(none), ElementsAre(4, 5)) << none;
  fs::remove(directory_ / "generation_config.json");
  EXPECT_THAT(stop_tokens(directory_, letters_), ElementsAre(4, 5));
}

TEST_F(StopTokens, WithoutThemTheTokenizersEndOfTextIs) {
  EXPECT_THAT(with("null"), ElementsAre());
  const Tokenizer ends = make_byte_tokenizer();
  EXPECT_THAT(stop_tokens(directory_, ends), ElementsAre(*ends.end_of_text()));
  EXPECT_THAT(with("7"), ElementsAre(7));
}

// As transformers saves small models of a large one's configuration.
TEST_F(StopTokens, ThatTheModelLacksEndNothing) {
  EXPECT_THAT(with("[7, 50256]"), ElementsAre(7));
  write_config("50256");
  EXPECT_THAT(with("50256"), ElementsAre());
  EXPECT_EQ(read_model_config(directory_).eos_token, -1);
}

TEST_F(StopTokens, MustBeNumbersOfTokens) {
  for (const char* ids : {"-7", "1.0", "\"7\"", "true", "[[7]]", "18446744073709551615"}) {
    try {
      (void)with(ids);
      ADD_FAILURE() << ids;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), HasSubstr("generation_config.json: \"eos_token_id\" is"));
    }
  }
}

}  // namespace
}  // namespace atl::model_dir
