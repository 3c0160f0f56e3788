// .ci/test, by which CI runs the tests: what it runs again, what it says, what it keeps. Here it
// has a tree of its own, whose `dev` starts the real ctest on tests that fail as often as they are
// told. And .ci/sanitized, which chooses the test programs for the sanitizers.

#include <fmt/format.h>

#include <string>

#include "program.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// As ./dev test, it leaves out the tests of ./dev nightly; ctest then numbers the others anew.
constexpr const char* kDev =
    "#!/bin/sh\nexec ctest --test-dir build/release --output-on-failure -E '^Nightly/'\n";

// A test program: each test counts its runs in a file and fails so many of them.
constexpr const char* kProgram = R"(#!/bin/sh
count=$(echo "$1" | tr / _).runs
runs=$(($(cat "$count" 2>/dev/null || echo 0) + 1))
echo $runs >"$count"
echo "this is run $runs of $1"
[ $runs -gt "$2" ]
)";

class CiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(tree_ / ".ci");
    fs::create_directories(build_);
    fs::copy_file(test_source_dir() / ".ci/test", tree_ / ".ci/test");
    write_script(tree_ / "dev", kDev);
  }

  /// A test of the program `program` that fails in its first `failures` runs.
  void add(const std::string& program, const std::string& name, int failures) {
    write_script(build_ / program, kProgram);
    tests_ += fmt::format("add_test(\"{}\" \"{}\" \"{}\" \"{}\")\n", name,
                          (build_ / program).string(), name, failures);
    write_file(build_ / "CTestTestfile.cmake", tests_);
  }

  /// Runs .ci/test; returns its exit code.
  int run() {
    // This test may itself run under a preset, as the sanitizers' does; the tree's is the default.
    const std::string command =
        fmt::format("env -u ATOLL_PRESET '{}/.ci/test' >'{}/out' 2>&1 </dev/null", tree_.string(),
                    tree_.string());
    const int status = std::system(command.c_str());
    out_ = read_file(tree_ / "out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int runs(const std::string& name) const {
    const fs::path path = build_ / (name + ".runs");
    return fs::exists(path) ? std::stoi(read_file(path)) : 0;
  }

  static void write_script(const fs::path& path, const std::string& text) {
    write_file(path, text);
    fs::permissions(path, fs::perms::owner_all);
  }

  TemporaryDirectory directory_;
  fs::path tree_ = directory_.path;
  fs::path build_ = tree_ / "build/release";
  std::string tests_;
  std::string out_;
};

TEST_F(CiTest, AFlakyTestOfTheProgramRunsTwiceAgainAndIsListedWithItsLog) {
  add("e2e_test", "Cli.Well", 0);
  add("e2e_test", "Islands.Flaky/0", 1);
  add("island_slow_test", "Simulator.Flaky", 1);
  EXPECT_EQ(run(), 0) << out_;
  EXPECT_EQ(runs("Cli.Well"), 1);
  EXPECT_EQ(runs("Simulator.Flaky"), 3);
  EXPECT_EQ(read_file(tree_ / "build/ci/flaky.txt"),
            "flaky: Islands.Flaky/0 (its log: build/ci/flaky-Islands.Flaky_0.log)\n"
            "flaky: Simulator.Flaky (its log: build/ci/flaky-Simulator.Flaky.log)\n");
  EXPECT_THAT(read_file(tree_ / "build/ci/flaky-Simulator.Flaky.log"),
              AllOf(HasSubstr("this is run 1 of Simulator.Flaky"),
                    HasSubstr("this is run 3 of Simulator.Flaky"), Not(HasSubstr("Cli.Well"))));
}

TEST_F(CiTest, TestsThatAreLeftOutDoNotHideWhichOneFailed) {
  add("ops_test", "Nightly/Kernels.All", 1);
  add("dist_test", "Dist/Ranks.Flaky # GetParam() = \\\"tcp\\\" <B0-C7 C2>", 1);
  add("ops_test", "Kernels.Well", 0);
  EXPECT_EQ(run(), 0) << out_;
  EXPECT_THAT(read_file(tree_ / "build/ci/flaky.txt"), HasSubstr("flaky: Dist/Ranks.Flaky # Get"));
  EXPECT_THAT(out_, HasSubstr("this is run 3 of Dist/Ranks.Flaky"));
  EXPECT_EQ(runs("Nightly_Kernels.All"), 0);
}

TEST_F(CiTest, ATestThatFailsAgainFails) {
  add("e2e_test", "Islands.Sometimes", 2);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(runs("Islands.Sometimes"), 2);
  EXPECT_THAT(out_, HasSubstr("failed: Islands.Sometimes, also when it runs alone"));
  EXPECT_FALSE(fs::exists(tree_ / "build/ci/flaky.txt"));
}

TEST_F(CiTest, AFastTestOfOneFolderDoesNotRunAgain) {
  add("island_test", "Simulator.Fast", 1);
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(runs("Simulator.Fast"), 1);
  EXPECT_THAT(out_, HasSubstr("failed: Simulator.Fast; it is neither slow nor end-to-end"));
}

TEST_F(CiTest, WhatIsNoTestFailsAtOnce) {
  add("e2e_test", "Cli.Flaky", 1);
  ASSERT_EQ(run(), 0) << out_;  // leaves a list of failed tests
  write_script(tree_ / "dev", "#!/bin/sh\necho the build failed\nexit 1\n");
  EXPECT_EQ(run(), 1);
  EXPECT_THAT(out_, HasSubstr("the build failed"));
}

class SanitizedTest : public CiTest {
 protected:
  void SetUp() override {
    fs::create_directories(tree_ / ".ci");
    fs::copy_file(test_source_dir() / ".ci/sanitized", tree_ / ".ci/sanitized");
    for (const char* folder : {"base", "comm", "ops", "train", "serve"})
      add_file(folder, "x.h", "");
    for (const char* folder : {"base", "comm", "ops", "train"}) add_file(folder, "x_test.cpp", "");
    add_file("serve", "x_slow_test.cpp", "");
    write_file_in("tests/e2e/x_test.cpp", "");
    write_file_in("tests/fuzz/x_fuzz.cpp", "");
  }

  void add_file(const std::string& folder, const std::string& name, const std::string& text) {
    write_file_in("src/atoll/" + folder + "/" + name, text);
  }
  void write_file_in(const fs::path& path, const std::string& text) {
    fs::create_directories((tree_ / path).parent_path());
    write_file(tree_ / path, text);
  }

  /// The chosen programs, one a line, when these files have changed.
  std::string chosen(const std::string& changed) {
    write_script(tree_ / "dev", "#!/bin/sh\n[ \"$1\" = changed ] && printf '" + changed + "'\n");
    const std::string command =
        fmt::format("'{}/.ci/sanitized' >'{}/out' 2>&1", tree_.string(), tree_.string());
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(tree_ / "out");
    return read_file(tree_ / "out");
  }
};

TEST_F(SanitizedTest, TheCoreSetIsAlwaysThere) {
  EXPECT_EQ(chosen(""), "base_test\ncomm_test\n");
  EXPECT_EQ(chosen("docs/testing.md\nsrc/atoll/README.md\n"), "base_test\ncomm_test\n");
}

TEST_F(SanitizedTest, ChangedFoldersOfSourcesAndTestsComeToIt) {
  EXPECT_EQ(chosen("src/atoll/train/island/rounds.cpp\ntests/e2e/x_test.cpp\n"),
            "base_test\ncomm_test\ne2e_test\ntrain_test\n");
}

TEST_F(SanitizedTest, AChangedHeaderBringsTheFoldersThatIncludeIt) {
  add_file("train", "step.cpp", "#include \"atoll/ops/x.h\"\n");
  EXPECT_EQ(chosen("src/atoll/ops/x.h\n"), "base_test\ncomm_test\nops_test\ntrain_test\n");
  EXPECT_EQ(chosen("src/atoll/ops/x.cpp\n"), "base_test\ncomm_test\nops_test\n");
}

TEST_F(SanitizedTest, FoldersWithoutFastTestsAreLeftOut) {
  EXPECT_EQ(chosen("src/atoll/serve/x.h\ntests/fuzz/x_fuzz.cpp\n"), "base_test\ncomm_test\n");
}

}  // namespace
}  // namespace atl::e2e
