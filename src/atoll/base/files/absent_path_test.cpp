#include "atoll/base/files/absent_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AbsentPath : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "atoll-absent-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    write_file(root_ / "kjv-demo.toml", "");
    write_file(root_ / "a.txt", "");
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
};

TEST_F(AbsentPath, TheNearestNameBesideItIsNamed) {
  EXPECT_EQ(advice_for_absent(root_ / "kjv-dmeo.toml"),
            "; did you mean " + (root_ / "kjv-demo.toml").string() + "?");
  EXPECT_EQ(advice_for_absent(root_ / "kjv-demo"), "");
  EXPECT_EQ(advice_for_absent(root_ / "b.txt"), "");
  EXPECT_EQ(advice_for_absent(root_ / "no" / "such.toml"), "");
  EXPECT_EQ(advice_for_absent(root_ / "kjv-demo.toml"), "") << "it is there";
}

TEST_F(AbsentPath, OfAMissingFileTheErrorSaysSo) {
  try {
    read_file(root_ / "kjv-demo.tml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("there is no file"), HasSubstr("did you mean")));
  }
}

TEST_F(AbsentPath, OfATextItSaysWhatToDoInstead) {
  EXPECT_THAT(advice_for_absent_text("-"), HasSubstr("standard input is not read"));
  EXPECT_THAT(advice_for_absent_text("roneneldan/TinyStories"),
              HasSubstr("hf://datasets/roneneldan/TinyStories"));
  EXPECT_EQ(advice_for_absent_text("no-such-books/x.txt"), "");
  EXPECT_THAT(advice_for_absent_text("https://example.org/a.txt"), HasSubstr("curl -LO"));
  EXPECT_THAT(advice_for_absent_text("s3://bucket/a.txt"), HasSubstr("aws s3 cp"));
  EXPECT_THAT(advice_for_absent_text("books/*.txt"), HasSubstr("give the directory (books)"));
  EXPECT_THAT(advice_for_absent_text("*.txt"), HasSubstr("give the directory (.)"));
  EXPECT_THAT(advice_for_absent_text(root_ / "kjv-dmeo.toml"), HasSubstr("did you mean"));
}

}  // namespace
}  // namespace atl
