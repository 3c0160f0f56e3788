// What is said of a path that is no model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/model_dir/model_source.h"

namespace atl::model_dir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FindModel : public ::testing::Test {
 protected:
  FindModel() { fs::create_directory(directory_); }
  ~FindModel() override { fs::remove_all(directory_); }

  static std::string refusal(const fs::path& path) {
    try {
      find_model(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path directory_ = fs::temp_directory_path() / fmt::format("atoll-find-{}", ::getpid());
};

TEST_F(FindModel, ARunWithoutACheckpointYetIsToldWhenItHasOne) {
  EXPECT_THAT(refusal(directory_), HasSubstr("is neither a model directory"));
  write_file(directory_ / "metrics.jsonl", "");
  EXPECT_THAT(refusal(directory_),
              AllOf(HasSubstr("is a run without a checkpoint yet: one is written every "
                              "checkpoint.every steps"),
                    HasSubstr("when Ctrl-C or SIGTERM stops it")));
  fs::create_directory(directory_ / "checkpoints");
  EXPECT_THAT(refusal(directory_), HasSubstr("is a run without a checkpoint yet"));
  fs::create_directory(directory_ / "checkpoints/step-00000003");
  EXPECT_THAT(refusal(directory_), AllOf(HasSubstr("none of the 1 checkpoints"),
                                         Not(HasSubstr("without a checkpoint yet"))))
      << "it has one, which is damaged";
}

TEST_F(FindModel, ATextIsToldWhereItBelongs) {
  write_file(directory_ / "a.txt", "text");
  EXPECT_THAT(refusal(directory_ / "a.txt"), HasSubstr("a text with --text (eval)"));
}

}  // namespace
}  // namespace atl::model_dir
