// What ./dev prints where nobody watches a terminal, and what it takes for changed: in a tree of
// its own, with a Ninja that builds nothing.

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "program.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNinja = R"(#!/bin/sh
for i in 1 2 3; do
  echo "[$i/3] Building CXX object $i.o"
  echo "$i.cpp:7: warning: number $i"
done
[ "$NINJA_FAILS" = 0 ] || echo "4.cpp:9: error: number 4"
exit "$NINJA_FAILS"
)";

class DevTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(tree_ / "bin");
    fs::create_directories(tree_ / "build/release");
    fs::copy_file(test_source_dir() / "dev", tree_ / "dev");
    write_file(tree_ / "CMakePresets.json", "{\"name\": \"release\"}\n");
    write_file(tree_ / "build/release/build.ninja", "\n");
    write_file(tree_ / "bin/ninja", kNinja);
    fs::permissions(tree_ / "bin/ninja", fs::perms::owner_all);
  }

  // Runs `./dev build` with these variables; returns its exit code.
  int build(const std::string& variables) {
    const std::string command = fmt::format(
        "env -u ATOLL_WERROR PATH=\"$PWD/bin:$PATH\" ATOLL_SETUP=0 {} ./dev build", variables);
    return run(command);
  }

  // Runs a command of the shell in the tree; returns its exit code.
  int run(const std::string& command) {
    const std::string whole = fmt::format("cd '{}' && ({}) >'{}' 2>&1 </dev/null", tree_.string(),
                                          command, (root_.path / "out").string());
    const int status = std::system(whole.c_str());
    out_ = read_file(root_.path / "out");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const fs::path& tree() const { return tree_; }

  std::string out_;

 private:
  TemporaryDirectory root_;
  const fs::path tree_ = root_.path / "tree";
};

TEST_F(DevTest, ABuildSaysNowAndThenHowFarItIs) {
  EXPECT_EQ(build("NINJA_FAILS=0 ATOLL_PROGRESS_S=0"), 0);
  EXPECT_THAT(out_, HasSubstr("    1 of 3\n    2 of 3\n    3 of 3\n1.cpp:7: warning"));
  EXPECT_THAT(out_, HasSubstr("==> built release in "));
  EXPECT_EQ(build("NINJA_FAILS=0 ATOLL_PROGRESS_S=100000"), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("    1 of 3\n"), Not(HasSubstr("2 of 3"))));
}

TEST_F(DevTest, ABuildThatFailsShowsWhy) {
  EXPECT_NE(build("NINJA_FAILS=1"), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("4.cpp:9: error: number 4"),
                          HasSubstr("error: the build of release failed"),
                          Not(HasSubstr("==> built")), Not(HasSubstr("\x1b["))));
}

TEST_F(DevTest, TestsOfAProgramAreItsTests) {
  std::string tests;
  const auto add = [&](const std::string& program, const std::string& name) {
    const fs::path path = tree() / "build/release" / program;
    write_file(path, "#!/bin/sh\n");
    fs::permissions(path, fs::perms::owner_all);
    tests += fmt::format("add_test(\"{}\" \"{}\")\n", name, path.string());
  };
  add("ops_test", "Nightly/Long.One");
  for (const char* name : {"Ops.One", "Ops.Two"}) add("ops_test", name);
  for (const char* name : {"Comm.One", "Comm.Two"}) add("comm_test", name);
  for (const char* name : {"Data.One", "Data.Two"}) add("data_test", name);
  write_file(tree() / "build/release/CTestTestfile.cmake", tests);
  const std::string start =
      "env -u ATOLL_PRESET -u ATOLL_WERROR PATH=\"$PWD/bin:$PATH\" ATOLL_SETUP=0";
  EXPECT_EQ(run(start + " NINJA_FAILS=0 ./dev test of comm_test"), 0) << out_;
  EXPECT_THAT(out_, AllOf(HasSubstr("Comm.One "), HasSubstr("Comm.Two "), Not(HasSubstr("Ops.")),
                          Not(HasSubstr("Data."))));
}

TEST_F(DevTest, TheTextOfTheRecipesIsWrittenOnce) {
  write_file(tree() / "bin/bible",
             "#!/bin/sh\necho >>asked\nseq 31102 | sed 's/^/Ge1:1 In the beginning /'\n");
  fs::permissions(tree() / "bin/bible", fs::perms::owner_all);
  const std::string text = "PATH=\"$PWD/bin:$PATH\" ATOLL_SETUP=0 ./dev text";
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(run(text), 0) << out_;
    EXPECT_THAT(out_, HasSubstr("runs/kjv-demo-data/kjv.txt: the King James Bible, 31102 verses"));
  }
  EXPECT_EQ(read_file(tree() / "asked"), "\n");
  EXPECT_THAT(read_file(tree() / "runs/kjv-demo-data/kjv.txt"),
              testing::StartsWith("In the beginning 1\nIn the beginning 2\n"));
}

TEST_F(DevTest, ChangedIsWhatDiffersFromWhereTheBranchBegan) {
  if (run("git --version") != 0) GTEST_SKIP() << "there is no git";
  // Nothing of the user's own settings, nor of a repository around this one.
  const std::string git =
      "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_DIR=$PWD/.git GIT_WORK_TREE=$PWD; "
      "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
      "GIT_COMMITTER_EMAIL=a@b; ";
  EXPECT_EQ(run(git + "./dev changed"), 0) << out_;
  EXPECT_EQ(out_, "");  // no repository
  const std::string commit = "git add . && git commit -q -m x && ";
  ASSERT_EQ(run(git + "git init -q && " + commit + "./dev changed"), 0) << out_;
  EXPECT_EQ(out_, "");  // no commit before this one
  ASSERT_EQ(run(git + "echo 1 >a.cpp && ./dev changed"), 0) << out_;
  EXPECT_EQ(out_, "a.cpp\n");
  ASSERT_EQ(run(git + commit + "echo 2 >b.cpp && " + commit + "./dev changed"), 0) << out_;
  EXPECT_EQ(out_, "b.cpp\n");
  ASSERT_EQ(run(git + "ATOLL_BASE=HEAD~1 ./dev changed"), 0) << out_;
  EXPECT_EQ(out_, "b.cpp\n");
  EXPECT_NE(run(git + "ATOLL_BASE=HEAD~7 ./dev changed"), 0);
  EXPECT_THAT(out_, HasSubstr("ATOLL_BASE = 'HEAD~7' is no commit"));
  ASSERT_EQ(run(git + "git update-ref refs/remotes/origin/main HEAD~1 && git mv a.cpp c.cpp && " +
                commit + "./dev changed"),
            0)
      << out_;
  EXPECT_EQ(out_, "b.cpp\n");  // c.cpp has only moved
}

TEST_F(DevTest, AParserIsFuzzedWhenItsFolderChanged) {
  if (run("git --version") != 0) GTEST_SKIP() << "there is no git";
  const std::string git =
      "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_DIR=$PWD/.git GIT_WORK_TREE=$PWD; "
      "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
      "GIT_COMMITTER_EMAIL=a@b; ";
  ASSERT_EQ(run(git + "mkdir -p tests/fuzz src/atoll/text src/atoll/data && "
                      "echo '#include \"atoll/text/a.h\"' >tests/fuzz/words_fuzz.cpp && "
                      "echo '#include \"atoll/data/b.h\"' >tests/fuzz/rows_fuzz.cpp && "
                      "echo '#include \"atoll/base/c.h\"' >tests/fuzz/other_fuzz.cpp && "
                      "git init -q && git add . && git commit -q -m x && "
                      "echo >src/atoll/text/d.cpp && echo >src/atoll/data/README.md && "
                      "./dev changed-parsers"),
            0)
      << out_;
  EXPECT_EQ(out_, "words\n");
  ASSERT_EQ(run(git + "echo >>tests/fuzz/other_fuzz.cpp && ./dev changed-parsers"), 0) << out_;
  EXPECT_EQ(out_, "other\nwords\n");
}

TEST_F(DevTest, TidyTakesTheLongestOfManyFilesAndSaysHowManyItLeaves) {
  if (run("git --version") != 0) GTEST_SKIP() << "there is no git";
  const std::string setup =
      "mkdir -p src build/release/tools/tidy && "
      "printf '#!/bin/sh\\n' >build/release/tools/tidy/tidy && "
      "printf '#!/bin/sh\\necho looks at $4\\n' >bin/clang-tidy && "
      "chmod +x build/release/tools/tidy/tidy bin/clang-tidy && "
      "echo >src/a.cpp && seq 3 >src/b.cpp && seq 9 >src/c.cpp && seq 20 >src/d.h && ";
  const std::string tidy =
      "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_DIR=$PWD/.git GIT_WORK_TREE=$PWD && "
      "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
      "&& export PATH=\"$PWD/bin:$PATH\" ATOLL_SETUP=0 NINJA_FAILS=0; unset ATOLL_WERROR; ";
  const std::string all = tidy + "git init -q && git commit -q --allow-empty -m x && " + setup;
  ASSERT_EQ(run(all + "ATOLL_TIDY_FILES=2 ./dev tidy"), 0) << out_;
  EXPECT_THAT(out_, AllOf(HasSubstr("clang-tidy leaves 1 of 3 changed files to ./dev nightly"),
                          HasSubstr("clang-tidy on 2 files"), HasSubstr("looks at src/b.cpp"),
                          HasSubstr("looks at src/c.cpp"), Not(HasSubstr("a.cpp"))));
  ASSERT_EQ(run(tidy + "./dev tidy"), 0) << out_;
  EXPECT_THAT(out_, AllOf(HasSubstr("clang-tidy on 3 files"), HasSubstr("looks at src/a.cpp"),
                          Not(HasSubstr("leaves"))));
}

}  // namespace
}  // namespace atl::e2e
