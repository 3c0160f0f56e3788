#include "atoll/cli/pages/metrics_page.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"
#include "atoll/http/testing.h"
#include "atoll/watch/prometheus.h"
#include "atoll/watch/service.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

island::CoordinatorStatus coordinator() {
  return {.has_begun = true,
          .outer_steps = 7,
          .attempts = 9,
          .commits = 8,
          .voids = 1,
          .islands_lost = 2,
          .connections = 3,
          .islands = {0, 1, 2, 0, 1},
          .batches_consumed = 700,
          .batches_leased = 200,
          .batches = 1000,
          .committed_at_s = 1.7e9,
          .exchange_seconds = 1.5,
          .round_seconds = 20,
          .contributions = 2};
}

// Of a run that has everything: what train/report/reporting.cpp and train/island/rounds.cpp write.
std::string run_page() {
  watch::RunMetrics run;
  metrics::Record record;
  for (const char* name : {"loss",
                           "grad_norm",
                           "lr",
                           "tokens",
                           "tokens_per_s",
                           "mfu",
                           "step_ms",
                           "data_fraction",
                           "ranks",
                           "exposed_comm_fraction",
                           "bytes_sent",
                           "slowest_rank",
                           "slowest_rank_excess",
                           "held_out_loss",
                           "held_out_bits_per_byte",
                           "held_out_tokens",
                           "expert_load_most",
                           "expert_load_least",
                           "expert_dropped_fraction",
                           "balance_loss",
                           "router_z_loss",
                           "outer_step",
                           "outer_members",
                           "outer_contributed",
                           "outer_tokens",
                           "outer_sent_bytes",
                           "outer_received_bytes",
                           "outer_exchange_s",
                           "outer_exposed_s",
                           "outer_utilisation",
                           "outer_bytes_saved",
                           "system/cpu_fraction",
                           "system/memory_bytes",
                           "system/network_sent_bytes_per_s"}) {
    record.add(name, 1.0);
  }
  run.write(record);
  run.stepped({.step = 1, .seconds = 1, .loss = 1, .grad_norm = 1, .rank_seconds = {1, 2}});
  metrics::PrometheusText process;
  add_process(process);
  return run.page() + process.text();
}

std::string study_page() {
  return to_page(StudyStatus{.trials = {1, 2, 3, 0, 1}, .running = 1, .results = 9, .best = {2.5}});
}

std::string watch_page() {
  const watch::Service service({.roots = {fs::temp_directory_path() / "atoll-no-such-runs"}});
  return http::body_of(http::ask(service.port(), "GET /metrics"));
}

std::vector<std::string> all_pages() {
  return {run_page(),
          to_page(coordinator()),
          to_page(launch::LaunchStatus{.ranks = 4}),
          to_page(param_server::SchedulerStatus{.workers = 1}),
          to_page(param_server::ServerStatus{.slices = 1}),
          study_page(),
          watch_page()};
}

std::set<std::string> all_names() {
  std::set<std::string> names;
  for (const std::string& page : all_pages()) {
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kType = "# TYPE ";
      if (line.starts_with(kType)) {
        names.insert(line.substr(kType.size(), line.find(' ', kType.size()) - kType.size()));
      }
    }
  }
  return names;
}

// Names of metrics in a text that are none of ours.
std::set<std::string> unknown_names(const std::string& text) {
  const std::set<std::string> names = all_names();
  std::set<std::string> unknown;
  const std::regex word("\\b(atoll|process)_[a-z0-9_]+");
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) {
    if (names.count(it->str()) == 0) unknown.insert(it->str());
  }
  return unknown;
}

// The texts that a board asks Prometheus for.
void add_expressions(const nlohmann::json& json, std::string& text, int& count) {
  if (json.is_object() && json.contains("expr")) {
    text += json["expr"].get<std::string>() + "\n";
    ++count;
  }
  if (json.is_structured()) {
    for (const auto& part : json) add_expressions(part, text, count);
  }
}

TEST(MetricsPage, SaysWhatACoordinatorKnows) {
  const std::string page = to_page(coordinator());
  EXPECT_THAT(page, HasSubstr("\natoll_outer_steps 7\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_islands{state=\"syncing\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_batches_consumed 700\n"));
}

TEST(MetricsPage, SaysHowTrialsEnded) {
  const std::string page = study_page();
  EXPECT_THAT(page, HasSubstr("\natoll_study_trials{end=\"none\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_study_trials{end=\"diverged\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_study_best{objective=\"0\"} 2.5\n"));
}

TEST(MetricsPage, EachPassesPromtool) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed (Debian's package prometheus)";
  }
  for (const std::string& page : all_pages()) {
    std::FILE* tool = ::popen("promtool check metrics", "w");
    ASSERT_NE(tool, nullptr);
    std::fwrite(page.data(), 1, page.size(), tool);
    const int status = ::pclose(tool);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << page;
  }
  const fs::path rules = test_source_dir() / "docs" / "prometheus-rules.yml";
  EXPECT_EQ(std::system(("promtool check rules '" + rules.string() + "' > /dev/null").c_str()), 0);
}

TEST(MetricsPage, TheBoardAsksForNamesThatExist) {
  const auto board =
      nlohmann::json::parse(read_file(test_source_dir() / "docs" / "grafana-atoll.json"));
  std::string text;
  int count = 0;
  add_expressions(board, text, count);
  EXPECT_GT(count, 20);
  EXPECT_THAT(unknown_names(text), IsEmpty());
}

TEST(MetricsPage, DocsNameOnesThatExist) {
  for (const char* file : {"prometheus.md", "prometheus-rules.yml"}) {
    const std::string text = read_file(test_source_dir() / "docs" / file);
    EXPECT_THAT(text, HasSubstr("atoll_last_step_timestamp_seconds"));
    EXPECT_THAT(unknown_names(text), IsEmpty()) << file;
  }
}

}  // namespace
}  // namespace atl::cli
