#include "atoll/metrics/alert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::metrics {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const Alert kAlert = {.time_s = 1763700000.25,
                      .step = 120,
                      .kind = AlertKind::kCheckpointLate,
                      .severity = Severity::kError,
                      .message = "it is \"late\"\n",
                      .command = "df -h 'a b'"};

TEST(Alert, GoesThroughItsLine) {
  const std::string line = to_jsonl(kAlert);
  EXPECT_EQ(line, R"({"time":1763700000.25,"step":120,"kind":"checkpoint_late","severity":"error",)"
                  R"("message":"it is \"late\"\n","command":"df -h 'a b'"})");
  EXPECT_EQ(to_jsonl(parse_alert(line, "x")), line);
  for (const std::string& name : alert_names()) EXPECT_EQ(name_of(alert_kind(name)), name);
}

TEST(Alert, IsReadUpToALineThatWasCutOff) {
  const fs::path dir = fs::temp_directory_path() / ("atoll-alerts-" + std::to_string(::getpid()));
  fs::create_directories(dir);
  EXPECT_TRUE(read_alerts(dir).empty());
  const std::string line = to_jsonl(kAlert) + "\n";
  write_file(dir / kAlertsFile, line + line + line.substr(0, 30));
  EXPECT_EQ(read_alerts(dir).size(), 2u);
  write_file(dir / kAlertsFile, line + "{\"kind\":\"else\"}\n");
  try {
    read_alerts(dir);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("alerts.jsonl:2"));
  }
  fs::remove_all(dir);
}

TEST(Alert, LineMovesNoCursor) {
  EXPECT_EQ(to_line(kAlert).find('\n'), std::string::npos);
  EXPECT_THAT(to_line(kAlert), HasSubstr("alert [checkpoint_late] step 120: it is"));
}

TEST(Alert, CommandsAreWordsForAShell) {
  EXPECT_EQ(shell_word("runs/x-1.toml"), "runs/x-1.toml");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(reboot)"), "'$(reboot)'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace atl::metrics
