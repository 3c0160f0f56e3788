#include "atoll/metrics/finished.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/files/file.h"

namespace atl::metrics {
namespace {

namespace fs = std::filesystem;

TEST(Finished, IsWhatTheFileSaysAndNothingElse) {
  const fs::path dir = fs::temp_directory_path() / ("atoll-finished-" + std::to_string(::getpid()));
  fs::create_directories(dir);
  EXPECT_EQ(finished_step(dir), -1) << "there is no file";
  write_finished(dir, 392);
  EXPECT_EQ(finished_step(dir), 392);
  for (const char* text : {"", "{", "[]", "{}", R"({"step":"x"})", R"({"step":1.5})", "392"}) {
    write_file(dir / kFinishedFile, text);
    EXPECT_EQ(finished_step(dir), -1) << text;
  }
  remove_finished(dir);
  EXPECT_FALSE(fs::exists(dir / kFinishedFile));
  remove_finished(dir);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace atl::metrics
