// Each rule on a small tree that breaks it once, and on trees that must pass.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "tidy/code.h"
#include "tidy/rules.h"

namespace atl::tidy {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A tree with two folders that passes; a test adds what it wants to see found.
class Tidy : public testing::Test {
 protected:
  Tidy() {
    std::string name = fs::temp_directory_path() / "tidy_test_XXXXXX";
    root_ = ::mkdtemp(name.data());
    write("tools/tidy/floors.txt", "# floors\nbase 0\nmetrics 1\ndevice 1\nops 3\n");
    write("src/atoll/CMakeLists.txt",
          "atoll_module(base)\natoll_module(ops DEPS base PRIVATE x)\n");
    write("src/atoll/base/README.md", "base\n");
    write("src/atoll/ops/README.md", "ops\n");
    write("src/atoll/base/a.h", "#pragma once\n/// A number.\nint a();\n");
    write("src/atoll/base/a.cpp", "#include \"atoll/base/a.h\"\nint a() { return 1; }\n");
    write("src/atoll/ops/cpu/b.cpp", "#include \"atoll/base/a.h\"\n");
  }
  ~Tidy() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    write_file(root_ / path, text);
  }

  // "path:line rule" of every finding.
  std::vector<std::string> found() const {
    std::vector<std::string> places;
    for (const Finding& finding : check_all(load_tree(root_))) {
      places.push_back(finding.path + ":" + std::to_string(finding.line) + " " + finding.rule);
    }
    return places;
  }

  fs::path root_;
};

#define EXPECT_FOUND(...) EXPECT_THAT(found(), testing::ElementsAre(__VA_ARGS__))

TEST_F(Tidy, CleanTreePasses) {
  EXPECT_FOUND();
}

TEST_F(Tidy, IncludeUpwardsIsFound) {
  write("src/atoll/CMakeLists.txt",
        "atoll_module(base DEPS device)\natoll_module(ops DEPS base)\n");
  write("src/atoll/device/README.md", "device\n");
  write("src/atoll/device/c.h", "#pragma once\n");
  write("src/atoll/base/d.cpp", "\n#include \"atoll/device/c.h\"\n");
  EXPECT_FOUND("src/atoll/base/d.cpp:2 floor");
}

TEST_F(Tidy, IncludeOfSiblingFloorIsFound) {
  write("src/atoll/CMakeLists.txt",
        "atoll_module(base)\natoll_module(metrics DEPS device)\n"
        "atoll_module(ops DEPS base)\n");
  write("src/atoll/device/README.md", "device\n");
  write("src/atoll/metrics/README.md", "metrics\n");
  write("src/atoll/device/device.h", "#pragma once\n");
  write("src/atoll/metrics/m.cpp", "#include \"atoll/device/device.h\"\n");
  EXPECT_FOUND("src/atoll/metrics/m.cpp:1 floor");
}

TEST_F(Tidy, UnknownFolderIsFound) {
  write("src/atoll/attic/x.h", "#pragma once\n");
  write("src/atoll/attic/README.md", "attic\n");
  write("tests/CMakeLists.txt", "file(GLOB files *.cpp)\n");
  write("tests/x_test.cpp", "#include \"atoll/attic/x.h\"\n");
  EXPECT_FOUND("src/atoll/attic/README.md:0 floor");
}

TEST_F(Tidy, FileCycleIsFoundOnce) {
  write("src/atoll/base/x.h", "#pragma once\n#include \"atoll/base/y.h\"\n");
  write("src/atoll/base/y.h", "#pragma once\n#include \"atoll/base/z.h\"\n");
  write("src/atoll/base/z.h", "#pragma once\n#include \"atoll/base/x.h\"\n");
  EXPECT_FOUND("src/atoll/base/z.h:2 cycle");
}

TEST_F(Tidy, CycleOfASourceAndTheHeaderItIncludesIsFound) {
  write("src/atoll/base/x.h", "#pragma once\n");
  write("src/atoll/base/y.h", "#pragma once\n#include \"atoll/base/x.h\"\n");
  write("src/atoll/base/x_test.cpp", "#include \"atoll/base/y.h\"\n");
  EXPECT_FOUND();
  write("src/atoll/base/x.cpp", "#include \"atoll/base/y.h\"\n");
  EXPECT_FOUND("src/atoll/base/y.h:2 cycle");
}

TEST_F(Tidy, FolderOfTooManyFilesIsFound) {
  for (int i = 0; i < 58; ++i) write(fmt::format("src/atoll/base/f{}.cpp", i), "int x;\n");
  EXPECT_FOUND();  // with a.h and a.cpp
  write("src/atoll/base/f58.cpp", "int x;\n");
  EXPECT_FOUND("src/atoll/base:0 folder");
}

TEST_F(Tidy, FloorsInsideAFolderAreChecked) {
  write("tools/tidy/floors.txt", "base 0\nops 3 kernels\nops/cpu 3.1\nops/list 3.2\n");
  write("src/atoll/ops/list.h", "#pragma once\n#include \"atoll/ops/cpu/c.h\"\n");
  write("src/atoll/ops/cpu/c.h", "#pragma once\n#include \"atoll/ops/d.h\"\n");
  write("src/atoll/ops/d.h", "#pragma once\n");
  write("src/atoll/ops/e.cpp", "#include \"atoll/ops/list.h\"\n");
  write("src/atoll/ops/e_test.cpp", "#include \"atoll/ops/list.h\"\n");
  EXPECT_FOUND("src/atoll/ops/e.cpp:1 floor");
}

TEST_F(Tidy, AnEntryOfTheTableThatIsNoFloorIsFound) {
  write("tools/tidy/floors.txt", "base 0\nmetrics 1\ndevice 1\nops three\n");
  EXPECT_FOUND("src/atoll/ops/README.md:0 floor", "tools/tidy/floors.txt:4 floor");
}

TEST_F(Tidy, DependenciesMustBeTheIncludes) {
  write("src/atoll/CMakeLists.txt", "atoll_module(base DEPS ops) # more\natoll_module(ops)\n");
  EXPECT_FOUND("src/atoll/CMakeLists.txt:0 dependency", "src/atoll/CMakeLists.txt:0 dependency");
}

TEST_F(Tidy, TourMustShowTheFloors) {
  write("docs/tour.md", "base 0\nmetrics 1\ndevice 1\nops 2\n");
  EXPECT_FOUND("docs/tour.md:0 tour");
}

TEST_F(Tidy, FolderWithoutReadmeIsFound) {
  fs::remove(root_ / "src/atoll/ops/README.md");
  EXPECT_FOUND("src/atoll/ops/README.md:0 readme");
}

TEST_F(Tidy, FolderCycleIsFoundBesideTheFloor) {
  write("src/atoll/ops/c.h", "#pragma once\n");
  write("src/atoll/base/d.cpp", "#include \"atoll/ops/c.h\"\n");
  write("src/atoll/ops/d.cpp", "#include \"atoll/base/a.h\"\n");
  EXPECT_FOUND("src/atoll/CMakeLists.txt:0 dependency", "src/atoll/base/d.cpp:1 floor",
               "src/atoll/ops/cpu/b.cpp:1 cycle");
}

TEST_F(Tidy, HeaderThatNobodyIncludesIsFound) {
  write("src/atoll/base/lonely.h", "#pragma once\n");
  EXPECT_FOUND("src/atoll/base/lonely.h:0 dead");
}

TEST_F(Tidy, SourceOutsideEveryGlobIsFound) {
  write("src/atoll/ops/rope/x.cpp", "int x;\n");
  write("bench/CMakeLists.txt", "file(GLOB sources \"*_bench.cpp\")\n");
  write("bench/a_bench.cpp", "int a;\n");
  write("bench/b.cpp", "int b;\n");
  EXPECT_FOUND("bench/b.cpp:0 dead");
}

TEST_F(Tidy, UndocumentedTypesAndFunctionsAreFound) {
  write(
      "src/atoll/base/a.h",
      "#pragma once\n\nclass Named {\n public:\n  void member();\n};\n\nint\nfree(int x = {});\n\n"
      "template <typename T>\nT of_template(T x) {\n  return x;\n}\n\nenum class Kind { kA, kB "
      "};\n");
  EXPECT_FOUND("src/atoll/base/a.h:3 docstring", "src/atoll/base/a.h:8 docstring",
               "src/atoll/base/a.h:11 docstring", "src/atoll/base/a.h:16 docstring");
}

TEST_F(Tidy, DocumentedAndObviousDeclarationsPass) {
  write("src/atoll/base/a.h",
        "#pragma once\n#define F(x) \\\n  int f(x);\nnamespace atl {\nclass Forward;\n"
        "/// Says it.\nstruct S {\n  int x = 1'000;\n};\nS make();\nS make(int);\n\n"
        "bool operator==(const S&, const S&);\nusing Alias = int;\nint variable = f(\"}\");\n\n"
        "inline int Forward::get() { return '{'; }\n\nnamespace internal {\nint hidden();\n}\n"
        "int tail();  ///< Says it behind.\n}  // namespace atl\n");
  EXPECT_FOUND();
}

TEST_F(Tidy, BlankLineEndsTheGroupThatADocstringCovers) {
  write("src/atoll/base/a.h", "#pragma once\n/// Says it.\nint a();\n\nint b();\n");
  EXPECT_FOUND("src/atoll/base/a.h:5 docstring");
}

TEST_F(Tidy, BackendFoldersNeedNoDocstrings) {
  write("src/atoll/ops/cpu/c.h", "#pragma once\nint c();\n");
  write("src/atoll/ops/testing.h", "#pragma once\nint t();\n");
  write("src/atoll/ops/cpu/b.cpp",
        "#include \"atoll/base/a.h\"\n#include \"atoll/ops/cpu/c.h\"\n#include "
        "\"atoll/ops/testing.h\"\n");
  EXPECT_FOUND();
}

TEST_F(Tidy, ConditionalCompilationIsFoundOutsideDevice) {
  write("src/atoll/base/a.cpp", "#ifdef X\n#endif\n#if HWY_ONCE\n#endif\n // #if in words\n");
  write("src/atoll/device/device.cpp", "#if X\n#endif\n");
  write("src/atoll/CMakeLists.txt",
        "atoll_module(base)\natoll_module(device)\natoll_module(ops DEPS base)\n");
  write("src/atoll/device/README.md", "device\n");
  EXPECT_FOUND("src/atoll/base/a.cpp:1 conditional");
}

TEST_F(Tidy, TabsLongLinesAndMissingPragmaAreFound) {
  const std::string hundred = "// " + std::string(97, 'x');
  std::string accents = "// ";
  for (int i = 0; i < 97; ++i) accents += "\u00e9";
  write("src/atoll/base/a.cpp", "#include \"atoll/base/b.h\"\n\tint x;\n" + hundred + "\n" +
                                    hundred + "x\n" + accents + "\n");
  write("src/atoll/base/b.h", "int b;\n");
  EXPECT_FOUND("src/atoll/base/a.cpp:2 tab", "src/atoll/base/a.cpp:4 columns",
               "src/atoll/base/b.h:1 pragma-once");
}

TEST_F(Tidy, PathsOfOneMachineAreFoundInAnyFile) {
  const std::string slash = "/";
  write("docs/a.md", "see " + slash + "home/me/x\n" + slash +
                         "home/mpiuser is in containers\nframe" + slash + "work/y passes\n");
  write("build.sh", "cd \"" + slash + "work/main\"\n");
  EXPECT_FOUND("build.sh:1 machine-path", "docs/a.md:1 machine-path");
}

TEST_F(Tidy, IgnoredFoldersAndBinaryFilesAreNotRead) {
  const std::string path = std::string("/") + "root/x\n";
  write(".gitignore", "/build/\n.venv*/\n");
  write("build/a.txt", path);
  write("tools/.venv-golden/b.txt", path);
  write("data.bin", std::string(1, '\0') + path);
  write("tools/build/c.txt", path);
  EXPECT_FOUND("tools/build/c.txt:1 machine-path");
}

TEST_F(Tidy, TensorMemoryIsTouchedByOpsAndNamedPlacesOnly) {
  const std::string touch = "auto* a = x.data<float>();\nauto* b = y->raw();\n";
  const std::string access = "// write_on_host\n#include \"atoll/tensor/host_access.h\"\n";
  write("tools/tidy/floors.txt", "base 0\ntensor 2\nops 3\nnn 4\n");
  write("src/atoll/CMakeLists.txt",
        "atoll_module(base)\natoll_module(tensor)\natoll_module(ops DEPS base tensor)\n"
        "atoll_module(nn DEPS tensor)\n");
  write("src/atoll/tensor/README.md", "tensor\n");
  write("src/atoll/tensor/host_access.h", "#pragma once\n");
  write("src/atoll/nn/README.md", "nn\n");
  write("src/atoll/ops/cpu/b.cpp", "#include \"atoll/base/a.h\"\n" + access + touch);
  write("src/atoll/nn/layer_test.cpp", access + touch);
  write("src/atoll/nn/testing.cpp", touch);
  write("src/atoll/nn/layer.cpp", "raw();\ndata<int>();\n" + touch);
  write("src/atoll/nn/rope.cpp", access);
  write("src/atoll/nn/norm.cpp", "HostRead read(x);\nwrite_on_host<int>(x, f);\n");
  EXPECT_FOUND("src/atoll/nn/layer.cpp:3 tensor-memory", "src/atoll/nn/layer.cpp:4 tensor-memory",
               "src/atoll/nn/norm.cpp:1 host-access", "src/atoll/nn/rope.cpp:2 host-access");
  write("tools/tidy/exceptions.txt", "host-access src/atoll/nn/rope.cpp # a table, made once\n");
  EXPECT_FOUND("src/atoll/nn/layer.cpp:3 tensor-memory", "src/atoll/nn/layer.cpp:4 tensor-memory",
               "src/atoll/nn/norm.cpp:1 host-access");
}

TEST_F(Tidy, ExceptionExcusesAndMustHaveReasonAndUse) {
  write("src/atoll/base/a.cpp", "#ifdef X\n#endif\n");
  write("tools/tidy/exceptions.txt", "conditional src/atoll/base/a.cpp # the CPU differs\n");
  EXPECT_FOUND();
  write("tools/tidy/exceptions.txt",
        "conditional src/atoll/base/a.cpp\ntab src/atoll/base/a.cpp # not so\n");
  EXPECT_FOUND("tools/tidy/exceptions.txt:1 exceptions", "tools/tidy/exceptions.txt:2 exceptions");
}

TEST_F(Tidy, ReportNamesTheLongestFunction) {
  std::string body = "S::S() : a_{1},\n    b_(2) {\n";
  for (int i = 0; i < 7; ++i) body += "  if (x) { y(); }\n";
  write("src/atoll/base/a.cpp", "namespace n {\n" + body + "}\n}\n");
  EXPECT_THAT(report(load_tree(root_)), HasSubstr("10 lines  src/atoll/base/a.cpp:2 S::S"));
}

TEST_F(Tidy, MissingRootIsTheUsersError) {
  EXPECT_THROW(load_tree(root_ / "nowhere"), Error);
}

TEST(Code, BlankingKeepsColumnsAndEndsRawStrings) {
  EXPECT_EQ(blank_comments_and_literals("a /* { */ \"}\\\"\" 'x' // b\n1'000"),
            "a         \"   \" ' '     \n1'000");
  EXPECT_EQ(blank_comments_and_literals("R\"x(\")\" )x\" b"), "            b");
}

}  // namespace
}  // namespace atl::tidy
