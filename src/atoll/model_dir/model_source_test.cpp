#include "atoll/model_dir/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/test_paths.h"
#include "atoll/text/new_tokenizers.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
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
    const std::string_view letters = "ab";
    return stop_tokens(directory_, make_char_tokenizer(std::span(&letters, 1)));
  }

  fs::path directory_ = fs::temp_directory_path() / fmt::format("atoll-stops-{}", ::getpid());
};

TEST_F(StopTokens, AreThoseOfTheFiles) {
  EXPECT_THAT(with("7"), ElementsAre(7));
  EXPECT_THAT(with("[100, 7]"), ElementsAre(7, 100));
  EXPECT_THAT(with("null"), ElementsAre());
  EXPECT_THAT(with("-1"), ElementsAre());
  EXPECT_THAT(with("[-1, 0]"), ElementsAre(0));
}

TEST_F(StopTokens, MustBeTokensOfTheModel) {
  for (const char* ids : {"-7", "101", "[7, 101]", "1.0", "\"7\"", "true", "[[7]]",
                          "18446744073709551615", "4294967303"}) {
    try {
      (void)with(ids);
      ADD_FAILURE() << ids;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("generation_config.json: \"eos_token_id\" is"),
                                      HasSubstr("from 0 to 100")));
    }
  }
}

}  // namespace
}  // namespace atl::model_dir
