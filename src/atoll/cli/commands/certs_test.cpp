#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "atoll/base/files/file.h"
#include "atoll/cli/program.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string out, err;
};

class CertsCommand : public ::testing::Test {
 protected:
  ~CertsCommand() override { fs::remove_all(directory_); }

  static Ended certs(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "certs");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Ended ended;
    ended.code = run_program(arguments);
    ended.out = ::testing::internal::GetCapturedStdout();
    ended.err = ::testing::internal::GetCapturedStderr();
    return ended;
  }

  const std::string directory_ =
      fs::temp_directory_path() / ("atoll-certs-" + std::to_string(::getpid()));
};

TEST_F(CertsCommand, MakesShowsAndRevokesIdentities) {
  EXPECT_EQ(certs({"init", directory_}).code, 0);
  EXPECT_THAT(certs({"show", directory_}).out, HasSubstr("nothing issued yet"));
  const Ended issued = certs({"issue", directory_, "lyon", "--host", "lyon.example.org", "--host",
                              "192.0.2.7", "--days", "90"});
  EXPECT_EQ(issued.code, 0) << issued.err;
  EXPECT_THAT(issued.out, HasSubstr("good for lyon lyon.example.org 192.0.2.7, until 20"));
  const std::string identity = directory_ + "/identities/lyon";
  EXPECT_THAT(certs({"show", identity}).out, HasSubstr("lyon, valid until 20"));
  EXPECT_THAT(certs({"show", directory_}).out, AllOf(HasSubstr("lyon"), HasSubstr(" valid ")));
  EXPECT_THAT(certs({"revoke", directory_, "lyon"}).out, HasSubstr("1 certificate of lyon"));
  EXPECT_THAT(certs({"show", directory_}).out, HasSubstr(" revoked "));
  EXPECT_EQ(certs({"show", identity}).code, 2);
}

TEST_F(CertsCommand, RefusesWhatDoesNotFitTheAction) {
  for (const auto& [arguments, words] :
       {std::pair<std::vector<std::string>, const char*>{{"init", directory_, "lyon"},
                                                         "a directory and no name"},
        {{"issue", directory_}, "a directory and a name"},
        {{"show", directory_, "--host", "x"}, "are for `atoll certs issue`"},
        {{"forge", directory_}, "forge"},
        {{"show", directory_}, "it has no ca.pem"},
        {{"issue", directory_, "lyon"}, "atoll certs init"}}) {
    const Ended ended = certs(arguments);
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace atl::cli
