#include "atoll/base/processes/sandbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace atl {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using End = SandboxResult::End;

SandboxResult shell(const std::string& line, const SandboxLimits& limits = {}) {
  return run_in_sandbox({"sh", "-c", line}, "given", limits);
}

TEST(Sandbox, GivesInputAndTakesOutput) {
  const SandboxResult result = shell("cat; echo said >&2; exit 3");
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "given");
  EXPECT_EQ(result.errors, "said\n");
}

// What a shell says of its own last command says nothing of the program.
TEST(Sandbox, AProgramThatIsNotThereIsNoProgramThatFails) {
  EXPECT_EQ(run_in_sandbox({"/no/such/program"}, "", {}).end, End::kNotRun);
  const SandboxResult result = shell("no-such-command-here");
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.status, 127);
}

TEST(Sandbox, EndsWhatTakesTooLongOrSaysTooMuch) {
  EXPECT_EQ(shell("sleep 600", {.seconds = 0.2}).end, End::kTime);
  EXPECT_EQ(shell("yes", {.output_bytes = 100}).end, End::kOutput);
}

// The superuser, too, who could make the mounts of his own namespace writable again.
TEST(Sandbox, NobodyWritesOutsideOfItsDirectory) {
  if (!has_sandbox()) GTEST_SKIP() << "this system gives programs no namespaces of their own";
  const fs::path file = fs::temp_directory_path() / ("atoll-escaped-" + std::to_string(::getpid()));
  const std::string write = "touch '" + file.string() + "'";
  EXPECT_NE(shell(write).status, 0);
  EXPECT_NE(shell("mount -o remount,bind,rw / && " + write).status, 0);
  EXPECT_NE(
      shell("mount -o remount,bind,rw '" + file.parent_path().string() + "' && " + write).status,
      0);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(shell("touch \"$TMPDIR/mine\"").status, 0);
  fs::remove(file);
}

TEST(Sandbox, AProgramHasNoRightsOfTheSuperuser) {
  if (!has_sandbox()) GTEST_SKIP() << "this system gives programs no namespaces of their own";
  EXPECT_THAT(shell("grep ^Cap /proc/self/status").output, HasSubstr("CapBnd:\t0000000000000000"));
}

}  // namespace
}  // namespace atl
