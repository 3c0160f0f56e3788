#include "atoll/base/files/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/read_file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = fs::temp_directory_path() / "atoll-file-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
    path_ = directory_ / "file";
  }
  ~Files() override {
    io_fault::disarm();
    fs::remove_all(directory_);
  }

  // The Error that fn throws.
  template <typename Fn>
  static Error error_of(Fn&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorKind::kInternal, "");
  }
  std::ptrdiff_t num_files() const {
    return std::distance(fs::directory_iterator(directory_), fs::directory_iterator());
  }

  fs::path directory_;
  fs::path path_;
};

using AtomicFiles = Files;

TEST_F(AtomicFiles, AppearWholeAtCommit) {
  {
    AtomicFile file(path_);
    file.write("hello ");
    file.write("world");
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_EQ(file.bytes_written(), 11U);
    EXPECT_EQ(file.digest(), hash_bytes("hello world", 11));
    file.commit();
  }
  EXPECT_EQ(read_file(path_), "hello world");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(AtomicFiles, LeaveNothingWithoutCommit) {
  { AtomicFile(path_).write("lost"); }
  EXPECT_EQ(num_files(), 0);
}

TEST_F(AtomicFiles, TakePiecesOfAnySize) {
  constexpr std::size_t kFlush = std::size_t{4} << 20;  // what file.cpp buffers
  std::string expected;
  AtomicFile file(path_);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kFlush - 1, kFlush, kFlush + 1,
                                 std::size_t{7}, std::size_t{5}}) {
    std::string piece(size, 'x');
    for (std::size_t i = 0; i < size; i += 1009) piece[i] = static_cast<char>(i >> 7);
    expected += piece;
    file.write(piece);
  }
  file.write(nullptr, 0);
  EXPECT_EQ(file.digest(), hash_bytes(expected.data(), expected.size()));
  file.commit();
  EXPECT_EQ(read_file(path_), expected);
}

// SQLite's way: the first, second, ... call of each kind fails until none is left to fail.
TEST_F(AtomicFiles, KeepTheOldFileUnderEveryFailure) {
  using io_fault::Call;
  const std::string large(std::size_t{4} << 20, 'n');
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kSync, Call::kRename}) {
    int failures = 0;
    for (int countdown = 1;; ++countdown) {
      write_file(path_, "old");
      io_fault::arm(call, countdown, ENOSPC);
      std::string message;
      try {
        AtomicFile file(path_);
        file.write("new ");
        file.write(large);
        file.write("end");
        file.commit();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kIo);
        message = error.what();
      }
      io_fault::disarm();
      EXPECT_EQ(num_files(), 1) << "a temporary file is left";
      if (message.empty()) break;
      ++failures;
      EXPECT_THAT(message, HasSubstr("No space left"));
      EXPECT_THAT(message, HasSubstr("free some space"));
      // Only the last sync, of the directory, comes after the new file is in place.
      const bool in_place = call == Call::kSync && countdown == 2;
      EXPECT_EQ(read_file(path_), in_place ? "new " + large + "end" : "old");
    }
    EXPECT_EQ(failures, call == Call::kWrite ? 3 : call == Call::kSync ? 2 : 1);
    EXPECT_EQ(read_file(path_).size(), large.size() + 7);
  }
}

TEST_F(AtomicFiles, WriteErrorSaysPathAndBytes) {
  io_fault::arm(io_fault::Call::kWrite, 2, EIO);
  const Error error = error_of([&] {
    AtomicFile file(path_);
    file.write("1234");
    file.write(std::string(std::size_t{5} << 20, 'x'));
  });
  EXPECT_THAT(error.what(), HasSubstr(path_.string()));
  EXPECT_THAT(error.what(), HasSubstr("after 4 bytes"));
  EXPECT_EQ(error.exit_code(), 1);
}

TEST_F(AtomicFiles, UsersMistakesAreUserErrors) {
  EXPECT_EQ(error_of([&] { AtomicFile file(directory_ / "none/file"); }).kind(), ErrorKind::kUser);
  write_file(path_, "a file");
  EXPECT_EQ(error_of([&] { AtomicFile file(path_ / "below"); }).kind(), ErrorKind::kUser);
  fs::create_directory(directory_ / "taken");
  EXPECT_EQ(error_of([&] { write_file(directory_ / "taken", ""); }).kind(), ErrorKind::kUser);
  io_fault::arm(io_fault::Call::kOpen, 1, EROFS);
  EXPECT_THAT(error_of([&] { write_file(path_, ""); }).what(),
              HasSubstr("choose a directory you may write to"));
  EXPECT_EQ(num_files(), 2);
}

TEST_F(Files, ReadingSaysWhatIsMissing) {
  const Error missing = error_of([&] { read_file(path_); });
  EXPECT_EQ(missing.kind(), ErrorKind::kUser);
  EXPECT_THAT(missing.what(), HasSubstr(path_.string()));
  EXPECT_EQ(error_of([&] { read_file(directory_); }).kind(), ErrorKind::kUser);
  EXPECT_EQ(error_of([&] { MappedFile file(path_); }).kind(), ErrorKind::kUser);
  EXPECT_EQ(error_of([&] { MappedFile file(directory_); }).kind(), ErrorKind::kUser);
}

// Whoever opened a pipe as a file would wait for its other end for ever.
TEST_F(Files, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  for (const auto& [path, what] : {std::pair<fs::path, const char*>{path_, "is a pipe"},
                                   {"/dev/zero", "is a device"},
                                   {"/dev/null", "is a device"}}) {
    const Error whole = error_of([&, &path = path] { read_file(path); });
    EXPECT_EQ(whole.kind(), ErrorKind::kUser);
    EXPECT_THAT(whole.what(), AllOf(HasSubstr(path.string()), HasSubstr(what)));
    const Error mapped = error_of([&, &path = path] { MappedFile file(path); });
    EXPECT_THAT(mapped.what(), AllOf(HasSubstr(path.string()), HasSubstr(what)));
  }
  fs::create_symlink(path_, directory_ / "link");
  EXPECT_THAT(error_of([&] { read_file(directory_ / "link"); }).what(), HasSubstr("is a pipe"));
}

TEST_F(Files, APointerOfGitLfsIsNoFile) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 988097824\n";
  write_file(path_, pointer);
  const auto named =
      AllOf(HasSubstr(path_.string() + " is a Git LFS pointer"), HasSubstr("git lfs pull"));
  EXPECT_THAT(error_of([&] { read_file(path_); }).what(), named);
  const Error mapped = error_of([&] { MappedFile file(path_); });
  EXPECT_EQ(mapped.kind(), ErrorKind::kUser);
  EXPECT_THAT(mapped.what(), named);
  write_file(path_, "In the " + pointer);
  EXPECT_EQ(read_file(path_), "In the " + pointer);
}

TEST_F(Files, AFileBeyondTheLimitIsRefusedBeforeItIsRead) {
  write_file(path_, "12345678");
  EXPECT_EQ(read_file(path_, 8), "12345678");
  const Error error = error_of([&] { read_file(path_, 7); });
  EXPECT_EQ(error.kind(), ErrorKind::kUser);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr(path_.string()), HasSubstr("8 bytes"), HasSubstr("at most 7")));
  fs::resize_file(path_, std::uintmax_t{1} << 42);  // a hole: 4 TB that take no room
  EXPECT_THAT(error_of([&] { read_file(path_); }).what(), HasSubstr("at most 67108864"));
  EXPECT_THAT(error_of([&] { read_file("/proc/self/stat", 10); }).what(), HasSubstr("at most 10"));
}

TEST_F(Files, ALinkToItselfIsNamed) {
  fs::create_symlink(path_, path_);
  EXPECT_THAT(error_of([&] { read_file(path_); }).what(),
              AllOf(HasSubstr(path_.string()), HasSubstr("symbolic links")));
}

TEST_F(Files, ReadingGoesToTheEndWhateverTheSizeSays) {
  EXPECT_THAT(read_file("/proc/self/stat"), HasSubstr("base_test"));  // its size says 0
  for (const std::size_t size : {std::size_t{0}, std::size_t{65535}, std::size_t{1} << 20}) {
    write_file(path_, std::string(size, 'x'));
    EXPECT_EQ(read_file(path_).size(), size);
  }
}

TEST_F(Files, MappedFileShowsTheBytesAndMovesWithItsOwner) {
  write_file(path_, "mapped");
  MappedFile first(path_);
  const std::byte* data = first.bytes().data();
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  write_file(directory_ / "empty", "");
  MappedFile third(directory_ / "empty");
  EXPECT_TRUE(third.bytes().empty());
  third = std::move(second);
  const std::span<const std::byte> bytes = third.bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "mapped");
  fs::remove(path_);
  EXPECT_EQ(third.bytes()[0], std::byte{'m'});
}

TEST_F(Files, DirectoryLockIsHeldByOneAndFreedAtTheEnd) {
  for (int i = 0; i < 2; ++i) {
    const DirectoryLock lock(directory_, "wait");
    const Error error = error_of([&] { const DirectoryLock second(directory_, "wait a little"); });
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    EXPECT_THAT(error.what(), HasSubstr("in use by another process; wait a little"));
  }
  EXPECT_EQ(error_of([&] { const DirectoryLock lock(directory_ / "none", ""); }).kind(),
            ErrorKind::kUser);
}

}  // namespace
}  // namespace atl
