#include "atoll/base/files/unfinished.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "atoll/base/files/file.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Unfinished : public ::testing::Test {
 protected:
  Unfinished() {
    std::string pattern = fs::temp_directory_path() / "atoll-unfinished-XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  ~Unfinished() override { fs::remove_all(directory_); }

  void put(const std::string& name) const { write_file(directory_ / name, "left behind"); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }

  fs::path directory_;
};

TEST_F(Unfinished, NamesAreThoseOfTheFinalFileAndANumber) {
  EXPECT_EQ(finished_name("corpus.json.tmp-4711"), "corpus.json");
  EXPECT_EQ(finished_name("corpus.json.tmp-4711.2"), "corpus.json");
  for (const char* name : {"corpus.json", ".tmp-1", "a.tmp-", "a.tmp-x", "a.tmp-1.", "a.tmp-1-2",
                           "a.tmp-1.2.3", "a.tmp-2026-01-31", "tmp-1", "a.tmp"}) {
    EXPECT_FALSE(finished_name(name)) << name;
  }
}

TEST_F(Unfinished, FilesThatNobodyWritesAreSwept) {
  for (const char* name : {"a.tmp-1", "a.tmp-999999", "a.tmp-7.3", "b.tmp-1", "a", "a.tmp-old"}) {
    put(name);
  }
  fs::create_directory(directory_ / "a.tmp-5");
  fs::create_symlink(directory_ / "a", directory_ / "a.tmp-6");
  sweep_unfinished(directory_, [](std::string_view name) { return name == "a"; });
  EXPECT_THAT(names(), UnorderedElementsAre("a", "a.tmp-old", "a.tmp-5", "a.tmp-6", "b.tmp-1"));
}

TEST_F(Unfinished, ANewFileOfTheSameNameSweepsFirst) {
  put("a.tmp-1");
  put("a.tmp-" + std::to_string(::gettid()));  // a process that was killed had this one's number
  put("other.tmp-1");
  write_file(directory_ / "a", "new");
  EXPECT_THAT(names(), UnorderedElementsAre("a", "other.tmp-1"));
  EXPECT_EQ(read_file(directory_ / "a"), "new");
}

TEST_F(Unfinished, FilesThatAreBeingWrittenStay) {
  AtomicFile first(directory_ / "a");
  first.write("first");
  sweep_unfinished(directory_, [](std::string_view) { return true; });
  EXPECT_EQ(names().size(), 1U);
  AtomicFile second(directory_ / "a");  // of the same thread, and so of the same number
  second.write("second");
  EXPECT_EQ(names().size(), 2U);
  second.commit();
  first.commit();
  EXPECT_EQ(read_file(directory_ / "a"), "first");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

// Another process, which is killed: what it wrote stays while it lives, and goes afterwards.
TEST_F(Unfinished, TheFileOfAKilledProcessIsSweptOnlyOnceItIsDead) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(directory_ / "a");
    [[maybe_unused]] const auto written = ::write(pipe[1], "x", 1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  const auto sweep = [&] { sweep_unfinished(directory_, [](std::string_view) { return true; }); };
  sweep();
  EXPECT_EQ(names().size(), 1U);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  sweep();
  EXPECT_THAT(names(), IsEmpty());
  ::close(pipe[0]);
  ::close(pipe[1]);
}

// Files are made and swept at once: no writer ever loses what it writes.
TEST_F(Unfinished, SweepersAndWritersDoNotMeet) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 100; ++round) {
        write_file(directory_ / ("a" + std::to_string(i % 2)), std::string(1000, 'x'));
      }
    });
  }
  for (int i = 0; i < 300; ++i) sweep_unfinished(directory_, [](std::string_view) { return true; });
  threads.clear();
  EXPECT_THAT(names(), UnorderedElementsAre("a0", "a1"));
}

}  // namespace
}  // namespace atl
