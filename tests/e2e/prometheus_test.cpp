// /metrics of every command that runs for long, asked while it does.

#include <nlohmann/json.hpp>
#include <regex>

#include "prometheus_fixture.h"
#include "tune_fixture.h"

namespace atl {
namespace {

using e2e::error_line;
using e2e::Finished;
using e2e::Metrics;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Metrics, OfTrainAreThoseOfTheRecord) {
  Program program(command("run", endless({std::string("--metrics.listen=") + kFree})));
  const int port = ports_of(program).front();
  const std::string page = page_with(port, "atoll_run_step", 20);
  expect_lint(page);
  EXPECT_EQ(stop(program), 143);
  // The record that the page was of is told by its tokens; numbers are the same doubles.
  const double tokens = value(page, "atoll_tokens_total");
  bool is_found = false;
  for (const metrics::Record& record : records("run")) {
    const nlohmann::json line = nlohmann::json::parse(metrics::to_jsonl(record));
    if (!line.contains("tokens") || line["tokens"] != tokens) continue;
    is_found = true;
    EXPECT_EQ(value(page, "atoll_loss"), line["loss"]);
    EXPECT_EQ(value(page, "atoll_learning_rate"), line["lr"]);
    EXPECT_EQ(value(page, "atoll_grad_norm"), line["grad_norm"]);
    EXPECT_EQ(value(page, "atoll_tokens_per_second"), line["tokens_per_s"]);
    EXPECT_EQ(value(page, "atoll_step_seconds"), 1e-3 * line["step_ms"].get<double>());
  }
  EXPECT_TRUE(is_found) << page;
  EXPECT_EQ(value(page, "atoll_steps_total"), value(page, "atoll_run_step"));
  EXPECT_EQ(value(page, "atoll_alerts_total{kind=\"spike\"}"), 0);
}

TEST_F(Metrics, OfRanksThatAreProcessesAreServedByTheLead) {
  Program program(
      ranked("run", endless({"-n2", "--backend=tcp", std::string("--metrics.listen=") + kFree})));
  const std::string page =
      page_with(ports_of(program).front(), "atoll_rank_micro_batch_seconds{rank=\"1\"}", 0);
  EXPECT_EQ(value(page, "atoll_ranks"), 2);
  EXPECT_EQ(stop(program), 143);
}

TEST_F(Metrics, OfALaunchCountRanksThatDie) {
  Program agent(launch("run", endless({"--min-ranks=1", "--max-ranks=2", "--backend=tcp",
                                       std::string("--metrics-listen=") + kFree})));
  const int port = ports_of(agent).front();
  expect_lint(page_with(port, "atoll_launch_ranks", 2));
  ASSERT_TRUE(took("run", 3)) << agent.errors();
  kill_rank(1);
  const std::string page = page_with(port, "atoll_launch_lost_ranks_total", 1);
  EXPECT_EQ(value(page, "atoll_launch_restarts_total"), 1);
  stop(agent);
}

TEST_F(Metrics, OfIslandsAndTheirCoordinator) {
  Program program(islanded("run", 2, e2e::kEndless, {std::string("--metrics.listen=") + kFree}));
  // The coordinator is in the process that starts islands.
  const std::string page = page_with(ports_of(program).front(), "atoll_outer_steps", 2);
  expect_lint(page);
  EXPECT_EQ(value(page, "atoll_islands{state=\"active\"}"), 2);
  EXPECT_GE(value(page, "atoll_outer_commits_total"), 2);
  EXPECT_GT(value(page, "atoll_last_exchange_seconds"), 0);
  const std::string island = page_with(ports_of(program, 2).back(), "atoll_outer_step", 2);
  expect_lint(island);
  EXPECT_GT(value(island, "atoll_outer_sent_bytes"), 0);
  stop(program);
}

TEST_F(Metrics, OfACoordinatorAndAnIslandByThemselves) {
  Program coordinator(
      {"coordinator", "--dir", path("ledger"), "--listen", kAnywhere, "--metrics-listen", kFree});
  const int port = ports_of(coordinator).front();
  expect_lint(page(port));
  Program island(joining("run", "alpha", address_of(coordinator),
                         {"--outer.islands=1", fmt::format("--train.steps={}", e2e::kEndless),
                          std::string("--metrics.listen=") + kFree}));
  page_with(port, "atoll_outer_steps", 1);
  page_with(ports_of(island).front(), "atoll_outer_step", 1);
  stop(island);
  stop(coordinator);
}

TEST_F(Metrics, OfServersAndTheirScheduler) {
  Program program(
      command("run", endless({"-n2", "--sync.mode=ps", "--train.micro_batch=1",
                              "--device.threads=1", std::string("--metrics.listen=") + kFree})));
  const std::string page = page_with(ports_of(program).front(), "atoll_scheduler_workers", 2);
  expect_lint(page);
  EXPECT_EQ(value(page, "atoll_scheduler_servers"), 1);
  stop(program);
}

TEST_F(Metrics, OfAServerByItself) {
  Program server({"server", "--listen", kAnywhere, "--metrics-listen", kFree, "--threads", "1"});
  const int port = ports_of(server).front();
  static const std::string kWords = "scheduler at ";
  const std::string said = server.errors();
  const std::size_t at = said.find(kWords) + kWords.size();
  const std::string scheduler = said.substr(at, said.find('\n', at) - at);
  Program worker(command("run", endless({"--sync.mode=ps", "--sync.addresses=" + scheduler,
                                         "--train.micro_batch=1", "--device.threads=1"})));
  const std::string page = page_with(port, "atoll_server_pushes_total", 10);
  expect_lint(page);
  EXPECT_GT(value(page, "atoll_server_pulls_total"), 0);
  EXPECT_GT(value(page, "atoll_server_parameter_bytes"), 0);
  EXPECT_EQ(value(page, "atoll_scheduler_workers"), 1);
  stop(worker);
  stop(server);
}

TEST_F(Metrics, OfWatchAreAtItsOwnAddress) {
  trained("run");
  Program watch({"watch", root_.path.string(), "--listen", kFree}, path("out"));
  int port = 0;
  ASSERT_TRUE(soon([&] {
    const std::string said = std::filesystem::exists(path("out")) ? read_file(path("out")) : "";
    const std::size_t at = said.find("http://127.0.0.1:");
    if (said.find('\n') == said.npos || at == said.npos) return false;
    port = std::atoi(said.c_str() + at + 17);
    return true;
  }));
  const std::string page = page_with(port, "atoll_watch_runs{state=\"finished\"}", 1);
  expect_lint(page);
  EXPECT_GT(value(page, "atoll_watch_records"), 0);
  EXPECT_EQ(stop(watch), 143);
}

TEST_F(Metrics, WhatCannotBeServedIsRefusedBeforeTheRun) {
  const auto refused = [&](const std::vector<std::string>& more) {
    const Finished finished = train("x", more);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(refused({"--metrics.listen=0.0.0.0:0"}),
              AllOf(HasSubstr("metrics.listen 0.0.0.0:0"), HasSubstr("metrics.token_file")));
  EXPECT_THAT(refused({"--metrics.key=x"}), HasSubstr("has no effect without metrics.listen"));
  EXPECT_THAT(refused({"--metrics.listen=here"}), HasSubstr("HOST:PORT"));
  const Finished joined =
      e2e::atoll({"launch", recipe(), "--join=alpha:1", "--slots=1", "--metrics-listen=:1"});
  EXPECT_THAT(error_line(joined), HasSubstr("--metrics-listen belongs to the launch"));
}

class StudyMetrics : public e2e::Tune {};

TEST_F(StudyMetrics, AreThoseOfItsTrials) {
  Program tune(command({"--budget.trials=1000", "--metrics-listen=127.0.0.1:0"}));
  const std::regex line("metrics for Prometheus at http://127\\.0\\.0\\.1:([0-9]+)/metrics");
  std::smatch port;
  std::string said;
  ASSERT_TRUE(soon([&] {
    said = tune.errors();
    return std::regex_search(said, port, line);
  })) << said;
  std::string page;
  EXPECT_TRUE(soon([&] {
    page = http::body_of(http::ask(std::stoi(port[1]), "GET /metrics"));
    return page.find("atoll_study_best{objective=\"0\"} ") != page.npos;
  })) << page;
  EXPECT_THAT(page, AllOf(HasSubstr("atoll_study_trials{end=\"finished\"} "),
                          HasSubstr("\natoll_study_running 1\n")));
  tune.send(SIGTERM);
  tune.wait();
  const Finished refused =
      e2e::atoll(command({"--study.workers=2", "--metrics.listen=127.0.0.1:9100"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("cannot all listen there"));
}

}  // namespace
}  // namespace atl
