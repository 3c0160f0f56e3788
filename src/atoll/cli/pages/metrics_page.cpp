#include "atoll/cli/pages/metrics_page.h"

#include "atoll/metrics/prometheus_text.h"

namespace atl::cli {

using metrics::PrometheusText;
using metrics::PrometheusType;

namespace {

constexpr PrometheusType kCounter = PrometheusType::kCounter;
constexpr PrometheusType kGauge = PrometheusType::kGauge;

template <typename Number>
void add(PrometheusText& page, const char* name, PrometheusType type, const char* help,
         Number value) {
  if (page.family(name, type, help)) page.sample(static_cast<double>(value));
}

watch::PrometheusAddress address_of(const MetricsFlags& flags) {
  return {.listen = flags.listen,
          .token_file = flags.token_file,
          .certificate = flags.certificate,
          .key = flags.key,
          .prefix = "--metrics-"};
}

}  // namespace

void add_metrics_flags(ArgumentParser& parser, MetricsFlags& flags) {
  parser.add_option("--metrics-listen", flags.listen,
                    "HOST:PORT to serve metrics to Prometheus at; port 0: a free one");
  parser.add_option(
      "--metrics-token-file", flags.token_file,
      "File with the secret that Prometheus must show there; needed unless HOST is this "
      "machine");
  parser.add_option("--metrics-certificate", flags.certificate,
                    "PEM file to serve them by TLS with, and --metrics-key");
  parser.add_option("--metrics-key", flags.key, "PEM file with its key");
}

std::unique_ptr<watch::PrometheusServer> serve_metrics(const MetricsFlags& flags,
                                                       std::function<std::string()> page) {
  const watch::PrometheusAddress address = address_of(flags);
  if (address.is_asked()) {
    return std::make_unique<watch::PrometheusServer>(address, std::move(page));
  }
  watch::open_access(address);  // refuses what belongs to an address
  return nullptr;
}

std::string to_page(const island::CoordinatorStatus& status) {
  PrometheusText page;
  add(page, "atoll_outer_steps", kGauge, "Outer steps that are committed and stand.",
      status.outer_steps);
  add(page, "atoll_outer_attempts_total", kCounter,
      "Attempts at outer steps, by the ledger, of all starts.", status.attempts);
  add(page, "atoll_outer_commits_total", kCounter,
      "Outer steps that were committed, by the ledger, of all starts.", status.commits);
  add(page, "atoll_outer_voided_total", kCounter,
      "Committed outer steps of which no island has the state any more.", status.voids);
  page.family("atoll_islands", kGauge, "Islands that have ever joined, by state.");
  for (std::size_t i = 0; i < status.islands.size(); ++i) {
    page.sample(status.islands[i], {{"state", name_of(static_cast<island::IslandState>(i))}});
  }
  add(page, "atoll_islands_lost_total", kCounter, "Times that an island was gone or silent.",
      status.islands_lost);
  add(page, "atoll_coordinator_connections", kGauge, "Connections of islands.", status.connections);
  if (status.has_begun) {
    add(page, "atoll_batches", kGauge, "Global batches of the whole run.", status.batches);
    add(page, "atoll_batches_consumed", kGauge, "Batches whose training is committed.",
        status.batches_consumed);
    add(page, "atoll_batches_leased", kGauge, "Batches that islands train on.",
        status.batches_leased);
  }
  if (status.committed_at_s > 0) {
    add(page, "atoll_last_commit_timestamp_seconds", kGauge,
        "When the newest outer step was committed, since 1970.", status.committed_at_s);
    add(page, "atoll_last_exchange_seconds", kGauge, "Time of the newest exchange.",
        status.exchange_seconds);
    add(page, "atoll_last_round_seconds", kGauge, "Time from the commit before to the newest one.",
        status.round_seconds);
    add(page, "atoll_last_contributions", kGauge, "Islands in the newest attempt at an outer step.",
        status.contributions);
  }
  return page.text();
}

std::string to_page(const launch::LaunchStatus& status) {
  PrometheusText page;
  add(page, "atoll_launch_ranks", kGauge, "Ranks that run.", status.ranks);
  add(page, "atoll_launch_places", kGauge, "Places for ranks on hosts that can be reached.",
      status.places);
  add(page, "atoll_launch_restarts_total", kCounter,
      "Failures that were gone on after, as --max-restarts counts them.", status.restarts);
  add(page, "atoll_launch_lost_ranks_total", kCounter, "Ranks that have died.", status.losses);
  add(page, "atoll_launch_groups_total", kCounter, "Groups of ranks that were started.",
      status.groups);
  return page.text();
}

std::string to_page(const param_server::SchedulerStatus& status) {
  PrometheusText page;
  add(page, "atoll_scheduler_workers", kGauge, "Workers that are connected.", status.workers);
  add(page, "atoll_scheduler_servers", kGauge, "Servers that have parameters.", status.servers);
  add(page, "atoll_scheduler_views_total", kCounter,
      "Changes of which server has which parameters.", status.views);
  return page.text();
}

std::string to_page(const param_server::ServerStatus& status) {
  PrometheusText page;
  add(page, "atoll_server_slices", kGauge, "Slices of the parameters that are here.",
      status.slices);
  add(page, "atoll_server_parameter_bytes", kGauge, "Bytes of their values.",
      status.parameter_bytes);
  add(page, "atoll_server_pushes_total", kCounter, "Pushes of gradients that came.", status.pushes);
  add(page, "atoll_server_pushed_bytes_total", kCounter, "Bytes of these.", status.pushed_bytes);
  add(page, "atoll_server_pulls_total", kCounter, "Pulls of parameters that came.", status.pulls);
  add(page, "atoll_server_lost_pushes_total", kCounter,
      "Pushes that had counted, and went with a server.", status.lost_pushes);
  return page.text();
}

StudyStatus status_of(const tune::Study& study, const tune::History& history, int num_running) {
  StudyStatus status{
      .running = num_running, .results = std::ssize(history.results()), .tokens = history.tokens()};
  for (const tune::Trial& trial : history.trials()) {
    ++status.trials.at(static_cast<std::size_t>(trial.end));
  }
  const std::vector<int> best = tune::best_trials(history, study.objectives(), study.max_steps());
  if (!best.empty()) {
    const tune::Trial& trial = history.trial(best.front());
    if (!trial.measured.empty()) status.best = trial.measured.back().values;
  }
  return status;
}

std::string to_page(const StudyStatus& status) {
  PrometheusText page;
  page.family("atoll_study_trials", kGauge, "Trials, by how they ended; none: they have not.");
  for (std::size_t i = 0; i < status.trials.size(); ++i) {
    const auto end = static_cast<tune::End>(i);
    page.sample(status.trials[i], {{"end", end == tune::End::kNone ? "none" : tune::name_of(end)}});
  }
  add(page, "atoll_study_running", kGauge, "Trials that train now.", status.running);
  add(page, "atoll_study_results_total", kCounter, "Measurements of trials.", status.results);
  add(page, "atoll_study_tokens_total", kCounter, "Tokens that trials have trained on.",
      status.tokens);
  if (!status.best.empty()) {
    page.family("atoll_study_best", kGauge,
                "Of the best trial, or the first of several, each objective by its number.");
    for (std::size_t i = 0; i < status.best.size(); ++i) {
      page.sample(status.best[i], {{"objective", std::to_string(i)}});
    }
  }
  return page.text();
}

}  // namespace atl::cli
