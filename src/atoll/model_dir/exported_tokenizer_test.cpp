#include "atoll/model_dir/exported_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/model_dir/sentence_piece_testing.h"
#include "atoll/text/tokenizer.h"

namespace atl::model_dir {
namespace {

class ExportedTokenizerTest : public ::testing::Test {
 protected:
  ExportedTokenizerTest() {
    std::string name = (std::filesystem::temp_directory_path() / "atoll-export-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~ExportedTokenizerTest() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST_F(ExportedTokenizerTest, ATokenizerModelGetsATokenizerJsonWithItsIds) {
  write_file(directory_ / "tokenizer.model", tiny_sentence_piece());
  write_file(
      directory_ / "tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "eos_token": "</s>"})");
  const ExportedTokenizer exported = exported_tokenizer(directory_);
  EXPECT_EQ(exported.note, "");
  const auto config = nlohmann::json::parse(exported.files.at("tokenizer_config.json"));
  EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(config.at("eos_token"), "</s>");
  const Tokenizer model = Tokenizer::load(directory_);
  const Tokenizer json = Tokenizer::from_json(exported.files.at("tokenizer.json"), "t");
  for (const char* text : {"  the sea", "the sea and  the é\n is", "", " ", "x</s> the"}) {
    EXPECT_EQ(json.encode(text, {.add_special = true}), model.encode(text, {.add_special = true}))
        << text;
  }
}

TEST_F(ExportedTokenizerTest, WhereThereIsNoneItSaysWhy) {
  write_file(directory_ / "tokenizer.model", tiny_sentence_piece(/*removes_spaces=*/true));
  const ExportedTokenizer exported = exported_tokenizer(directory_);
  EXPECT_TRUE(exported.files.empty());
  EXPECT_THAT(exported.note, ::testing::HasSubstr("it removes extra white space"));
}

TEST_F(ExportedTokenizerTest, OthersAreLeftAlone) {
  EXPECT_TRUE(exported_tokenizer(directory_).files.empty());
  write_file(directory_ / "tokenizer.model", tiny_sentence_piece());
  write_file(directory_ / "tokenizer.json", "{}");
  EXPECT_TRUE(exported_tokenizer(directory_).files.empty());
  EXPECT_EQ(exported_tokenizer(directory_).note, "");
}

}  // namespace
}  // namespace atl::model_dir
