#include "atoll/model_dir/new_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

class NewDirectories : public ::testing::Test {
 protected:
  NewDirectories() {
    std::string pattern = fs::temp_directory_path() / "atoll-new-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~NewDirectories() override { fs::remove_all(root_); }

  static std::vector<std::string> names(const fs::path& directory) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }

  fs::path root_;
};

TEST_F(NewDirectories, HoldWhatWasPutThereAndNothingElse) {
  NewDirectory made(root_ / "out", "--out");
  write_file(made.temporary() / "file", "content");
  EXPECT_FALSE(fs::exists(root_ / "out"));
  made.commit();
  EXPECT_THAT(names(root_), UnorderedElementsAre("out"));
  EXPECT_THAT(names(root_ / "out"), UnorderedElementsAre("file"));
}

TEST_F(NewDirectories, LeaveNothingWithoutCommit) {
  { write_file(NewDirectory(root_ / "out", "--out").temporary() / "file", "content"); }
  EXPECT_THAT(names(root_), UnorderedElementsAre());
}

TEST_F(NewDirectories, ThatTwoFillAtOnceAreTwo) {
  NewDirectory one(root_ / "out", "--out");
  NewDirectory two(root_ / "out", "--out");
  EXPECT_NE(one.temporary(), two.temporary());
  write_file(one.temporary() / "file", "one");
  one.commit();
  EXPECT_EQ(read_file(root_ / "out/file"), "one");
}

TEST_F(NewDirectories, OfAKilledProcessAreSwept) {
  const pid_t child = ::fork();
  if (child == 0) {
    NewDirectory made(root_ / "out", "--out");
    write_file(made.temporary() / "file", "left behind");
    ::_exit(0);  // as a kill does: nothing is destroyed
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(names(root_).size(), 1U);
  // Not atoll's: neither has the mark.
  fs::create_directory(root_ / "out.tmp-12");
  write_file(root_ / "out.tmp-12/mine", "mine");
  fs::create_directory(root_ / "other.tmp-12");
  NewDirectory made(root_ / "out", "--out");
  write_file(made.temporary() / "new", "content");
  made.commit();
  EXPECT_THAT(names(root_), UnorderedElementsAre("out", "out.tmp-12", "other.tmp-12"));
  EXPECT_THAT(names(root_ / "out"), UnorderedElementsAre("new"));
}

}  // namespace
}  // namespace atl::model_dir
