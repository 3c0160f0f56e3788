#include "atoll/ckpt/run_lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "atoll/ckpt/testing.h"

namespace atl::ckpt {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::filesystem::path& run) {
  try {
    const RunLock lock(run);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "";
}

TEST(RunLock, OneAtATime) {
  const testing::TemporaryDirectory run("lock");
  std::optional<RunLock> lock(run.path());
  EXPECT_THAT(refusal(run.path()), HasSubstr(fmt::format("in use by process {} on", ::getpid())));
  lock.reset();
  EXPECT_EQ(refusal(run.path()), "");
}

TEST(RunLock, OtherProcessHoldsItUntilItIsKilled) {
  const testing::TemporaryDirectory run("lock2");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const int child = ::fork();
  if (child == 0) {
    const RunLock lock(run.path());
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_THAT(refusal(run.path()), HasSubstr(fmt::format("in use by process {} on", child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(refusal(run.path()), "");
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(RunLock, NoSuchDirectoryIsTheUsersError) {
  EXPECT_THAT(refusal("/nonexistent/run"), HasSubstr("there is no run directory"));
}

}  // namespace
}  // namespace atl::ckpt
