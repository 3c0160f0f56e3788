#include "atoll/train/corpus/missing_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class MissingText : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "atoll-text-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    write_file(dir_ / "here.txt", "some text\n");
  }
  void TearDown() override { fs::remove_all(dir_); }

  // What is said of a recipe with these lines and of these arguments; "": nothing.
  std::string said(const std::string& recipe, const std::vector<std::string>& overrides = {}) {
    TrainConfig config;
    Settings settings = make_settings(config);
    write_file(dir_ / "r.toml", recipe);
    settings.load_toml(dir_ / "r.toml");
    for (const std::string& argument : overrides) settings.override(argument);
    try {
      require_texts(config, settings);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  }

  fs::path dir_;
};

TEST_F(MissingText, TheRecipesOwnCommentSaysWhereItComesFrom) {
  EXPECT_EQ(
      said("[data]\ntext = [\"no/kjv.txt\"]  # a verse a line; `./dev text` writes it\n"),
      fmt::format("there is no file or directory no/kjv.txt (data.text, {}:2: a verse a line; "
                  "`./dev text` writes it); make it, or give a text of yours: "
                  "--data.text=FILE",
                  (dir_ / "r.toml").string()));
  EXPECT_THAT(said("[data]\ntext = [\"no/kjv.txt\"]\n"), HasSubstr("r.toml:2); make it"));
  EXPECT_THAT(said("[data]\ntext = [\"no/a #b.txt\"]\n"), HasSubstr("r.toml:2); make it"))
      << "within quotes there is no comment";
}

TEST_F(MissingText, OfTheCommandLineTheNearestIsNamed) {
  const std::string path = (dir_ / "hree.txt").string();
  EXPECT_THAT(
      said("", {"--data.text=" + path}),
      EndsWith("(data.text, --data.text); did you mean " + (dir_ / "here.txt").string() + "?"));
  EXPECT_THAT(said("", {"--data.text=s3://a/b"}), HasSubstr("hf://datasets/ORG/NAME"));
  EXPECT_EQ(said("", {"--data.text=" + (dir_ / "here.txt").string()}), "");
}

}  // namespace
}  // namespace atl::train
