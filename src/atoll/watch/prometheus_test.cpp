#include "atoll/watch/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"

namespace atl::watch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

metrics::Record step_record() {
  metrics::Record record;
  record.step = 120;
  record.add("loss", 3.0000000000000004);
  record.add("tokens", std::int64_t{61440});
  record.add("tokens_per_s", 9812.25);
  record.add("mfu", 0.61);
  record.add("step_ms", 208.5);
  record.add("data_fraction", 0.01);
  record.add("eval/total", 4.0);
  record.add("wait_ms", 8.0);
  record.add("system/cpu_fraction", 0.75);
  record.add("system/disk_read_bytes_per_s", 2048.0);
  record.add("nonfinite_samples", std::string("sample 3 \"}{\n"));
  return record;
}

// The value of a sample without labels.
double value_of(const std::string& page, const std::string& name) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return std::strtod(line.c_str() + name.size() + 1, nullptr);
  }
  ADD_FAILURE() << "no " << name << " in\n" << page;
  return 0;
}

RunMetrics& fill(RunMetrics& run) {
  run.write(step_record());
  run.stepped({.step = 121, .seconds = 0.25, .loss = 2.5, .rank_seconds = {0.1, 0.2}});
  run.alerted({.kind = metrics::AlertKind::kSpike});
  return run;
}

TEST(Prometheus, HasTheValuesOfTheRecordExactly) {
  RunMetrics run;
  const std::string page = fill(run).page();
  EXPECT_EQ(value_of(page, "atoll_loss"), 3.0000000000000004);
  EXPECT_EQ(value_of(page, "atoll_tokens_total"), 61440);
  EXPECT_EQ(value_of(page, "atoll_tokens_per_second"), 9812.25);
  EXPECT_EQ(value_of(page, "atoll_system_cpu_fraction"), 0.75);
  EXPECT_EQ(value_of(page, "atoll_system_disk_read_bytes_per_second"), 2048);
  EXPECT_EQ(value_of(page, "atoll_step_seconds"), 1e-3 * 208.5);
  EXPECT_EQ(value_of(page, "atoll_eval_total_value"), 4);
  EXPECT_EQ(value_of(page, "atoll_wait_seconds"), 0.008);
  EXPECT_EQ(value_of(page, "atoll_run_step"), 121);
  EXPECT_THAT(page,
              AllOf(HasSubstr("atoll_rank_micro_batch_seconds{rank=\"1\"} 0.2\n"),
                    HasSubstr("atoll_alerts_total{kind=\"spike\"} 1\n"),
                    HasSubstr("atoll_alerts_total{kind=\"stall\"} 0\n"), Not(HasSubstr("sample"))))
      << "no text of the run";
}

TEST(Prometheus, WritesWhatIsNotFinite) {
  metrics::PrometheusText text;
  text.family("a", metrics::PrometheusType::kGauge, "One \\ two\nthree.");
  text.sample(std::numeric_limits<double>::quiet_NaN(), {{"x", "a\"b\\c\nd"}});
  text.sample(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(text.text(),
            "# HELP a One \\\\ two\\nthree.\n# TYPE a gauge\n"
            "a{x=\"a\\\"b\\\\c\\nd\"} NaN\na -Inf\n");
}

TEST(Prometheus, HasAFamilyOnceWhateverNamesAre) {
  RunMetrics run;
  metrics::Record record;
  record.add("metric_3", 1.0);
  record.add("steps", 1.0);
  record.add("run_step", 1.0);
  for (int i = 0; i < 2000; ++i) record.add("metric/" + std::to_string(i), 1.0);
  run.write(record);
  std::istringstream lines(run.page());
  std::set<std::string> families;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(families.insert(line).second) << line;
  }
  EXPECT_LT(families.size(), RunMetrics::kMostFamilies + 20);
}

// Debian's package prometheus has it.
TEST(Prometheus, PassesPromtool) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed (Debian's package prometheus)";
  }
  RunMetrics run;
  std::FILE* tool = ::popen("promtool check metrics 2>&1", "w");
  ASSERT_NE(tool, nullptr);
  const std::string page = fill(run).page();
  std::fwrite(page.data(), 1, page.size(), tool);
  const int status = ::pclose(tool);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << page;
}

}  // namespace
}  // namespace atl::watch
