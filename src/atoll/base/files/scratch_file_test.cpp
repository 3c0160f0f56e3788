#include "atoll/base/files/scratch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "atoll/base/files/file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ScratchFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("atoll-scratch-{}", ::getpid());
    fs::create_directories(root_);
  }
  void TearDown() override {
    io_fault::disarm();
    fs::remove_all(root_);
  }

  template <typename Fn>
  static std::string error_of(Fn&& fn, ErrorKind kind) {
    try {
      fn();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  fs::path root_;
};

// Memory that begins at a place of a page.
class PagedMemory {
 public:
  PagedMemory(std::size_t place, std::size_t bytes) : all_(bytes + 2 * kFilePage), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(all_.data());
    data_ = all_.data() + (kFilePage - address % kFilePage) + place;
  }
  std::span<std::byte> bytes() { return {data_, bytes_}; }

 private:
  std::vector<std::byte> all_;
  std::byte* data_;
  std::size_t bytes_;
};

TEST_F(ScratchFileTest, ReadsWhatWasWrittenWhereverPagesBegin) {
  const ScratchFile file(root_, 10 * kFilePage);
  std::vector<std::byte> expected(file.bytes());
  int number = 0;
  const std::size_t places[] = {0, 1, 64, kFilePage - 64, kFilePage, 2 * kFilePage + 640};
  const std::size_t sizes[] = {1, 64, kFilePage - 64, kFilePage, 3 * kFilePage, 4 * kFilePage + 8};
  for (const std::size_t place : places) {
    for (const std::size_t size : sizes) {
      for (const bool same_place : {true, false}) {
        PagedMemory memory(same_place ? place % kFilePage : 32, size);
        for (std::byte& byte : memory.bytes()) byte = static_cast<std::byte>(++number % 251);
        file.write(place, memory.bytes());
        std::ranges::copy(memory.bytes(), expected.begin() + static_cast<std::ptrdiff_t>(place));
        PagedMemory again(same_place ? 0 : 8, file.bytes());
        file.read(0, again.bytes());
        ASSERT_TRUE(std::ranges::equal(again.bytes(), expected)) << place << " " << size;
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), file.mapped()));
      }
    }
  }
  file.mapped()[kFilePage + 1] = std::byte{77};
  PagedMemory page(0, kFilePage);
  file.read(kFilePage, page.bytes());
  EXPECT_EQ(page.bytes()[1], std::byte{77}) << "what was written through the map";
}

TEST_F(ScratchFileTest, HasNoNameAndItsRoomFromTheBeginning) {
  const fs::path directory = root_ / "made" / "for it";
  const std::uintmax_t free_before = fs::space(root_).available;
  const ScratchFile file(directory, std::uint64_t{256} << 20);
  EXPECT_TRUE(fs::is_empty(directory));
  EXPECT_LT(fs::space(root_).available, free_before - (std::uint64_t{128} << 20));
}

TEST_F(ScratchFileTest, NoRoomIsAnErrorThatSaysWhereAndWhatToDo) {
  EXPECT_THAT(error_of([&] { ScratchFile(root_, std::uint64_t{1} << 50); }, ErrorKind::kIo),
              AllOf(HasSubstr(root_.string()), HasSubstr("choose a directory on another disk")));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string error = error_of([&] { ScratchFile(root_, 2 << 20); }, ErrorKind::kIo);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(error, "a scratch file of 2.0 MiB does not fit into " + root_.string() +
                       ": this process may write files of 1.0 MiB (ulimit -f); free some space, "
                       "or choose a directory on another disk");
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(ScratchFileTest, ADirectoryThatCannotBeIsTheUsersMistake) {
  write_file(root_ / "file", "x");
  EXPECT_THAT(error_of([&] { ScratchFile(root_ / "file", 1); }, ErrorKind::kUser),
              HasSubstr((root_ / "file").string()));
  io_fault::arm(io_fault::Call::kOpen, 1, EACCES, root_.string());
  EXPECT_THAT(error_of([&] { ScratchFile(root_, 1); }, ErrorKind::kUser),
              HasSubstr("choose a directory you may write to"));
}

TEST_F(ScratchFileTest, AWriteThatFailsNamesBytesAndPlace) {
  const ScratchFile file(root_, 8192);
  std::vector<std::byte> bytes(100);
  io_fault::arm(io_fault::Call::kWrite, 1, EIO, root_.string());
  EXPECT_THAT(error_of([&] { file.write(300, bytes); }, ErrorKind::kIo),
              AllOf(HasSubstr("cannot write 100 bytes at 300 of the scratch file in"),
                    HasSubstr(root_.string())));
}

}  // namespace
}  // namespace atl
