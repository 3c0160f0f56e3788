#include "atoll/base/files/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Paths : public ::testing::Test {
 protected:
  Paths() {
    std::string pattern = fs::temp_directory_path() / "atoll-paths-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~Paths() override { fs::remove_all(directory_); }

  fs::path directory_;
};

TEST_F(Paths, SayWhatIsThere) {
  const fs::path file = directory_ / "file";
  write_file(file, "");
  fs::create_symlink(file, directory_ / "link");
  fs::create_symlink("nothing", directory_ / "dangling");
  EXPECT_TRUE(path_exists(file) && path_exists(directory_) && path_exists(directory_ / "link"));
  EXPECT_FALSE(path_exists(directory_ / "none") || path_exists(directory_ / "dangling"));
  EXPECT_FALSE(path_exists(file / "below"));
  EXPECT_TRUE(directory_exists(directory_));
  EXPECT_FALSE(directory_exists(file) || directory_exists(directory_ / "none"));
  EXPECT_TRUE(file_exists(file) && file_exists(directory_ / "link"));
  EXPECT_FALSE(file_exists(directory_) || file_exists("/dev/null"));
  EXPECT_EQ(real_path(directory_ / "link"), real_path(file));
}

TEST_F(Paths, NameWhatTheyCannotLookAt) {
  const fs::path loop = directory_ / "loop";
  fs::create_symlink(loop, loop);
  const fs::path long_name = directory_ / std::string(5000, 'x');
  const auto expect = [](auto&& ask, const fs::path& path, const char* reason) {
    try {
      ask(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr(reason)));
    }
  };
  for (const auto& ask : {path_exists, directory_exists, file_exists}) {
    expect(ask, loop, "Too many levels of symbolic links");
    expect(ask, loop / "config.json", "Too many levels of symbolic links");
    expect(ask, long_name, "File name too long");
  }
  expect(real_path, loop, "Too many levels of symbolic links");
  expect(real_path, directory_ / "none", "there is no file");
}

TEST_F(Paths, APipeHasNoOther) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string path = "/dev/fd/" + std::to_string(ends[0]);
  try {
    real_path(path);
    ADD_FAILURE() << path;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr(path + " is a pipe, and atoll reads it from a regular file"));
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace atl
