#include "atoll/cli/pages/run_watch.h"

#include <unistd.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/metrics/alert.h"

namespace atl::cli {

using metrics::AlertKind;
using metrics::shell_word;

std::string resume_command(const std::string& recipe, const std::vector<std::string>& overrides,
                           int num_ranks, const std::string& without) {
  // A key may stand on a command line once; and commands go where a webhook's key should not.
  const std::string known = without.empty() ? "" : "--" + without + "=";
  std::string text = "atoll train";
  if (!recipe.empty()) text += " " + shell_word(recipe);
  if (num_ranks > 1) text += fmt::format(" -n {}", num_ranks);
  for (const std::string& one : overrides) {
    if (one.starts_with("--alerts.webhook=")) continue;
    if (known.empty() || !one.starts_with(known)) text += " " + shell_word(one);
  }
  return text;
}

std::set<AlertKind> alerts_off(const train::AlertSettings& settings) {
  std::set<AlertKind> off;
  for (const std::string& name : settings.off) {
    if (name != "all") {
      off.insert(metrics::alert_kind(name));
      continue;
    }
    for (const std::string& kind : metrics::alert_names()) off.insert(metrics::alert_kind(kind));
  }
  return off;
}

watch::PrometheusAddress metrics_address(const train::MetricsSettings& settings) {
  return {.listen = settings.listen,
          .token_file = settings.token_file,
          .certificate = settings.certificate,
          .key = settings.key};
}

void RunWatch::begin(train::Trainer& trainer, bool takes_over) {
  try {
    serve_metrics(trainer);
  } catch (const Error& error) {
    if (!takes_over) throw;
    log::warning("metrics are not served any more: {}", error.what());
  }
  watch_for_alerts(trainer);
  if (auto server = watch::kubeflow_server()) {
    kubeflow_ = std::make_unique<watch::KubeflowStatus>(std::move(*server), trainer.first_step(),
                                                        recipe_.config().train.steps);
    observers_.add(*kubeflow_);
  }
  if (!observers_.is_empty()) trainer.observe(observers_);
}

void RunWatch::serve_metrics(train::Trainer& trainer) {
  const watch::PrometheusAddress address = metrics_address(recipe_.config().metrics);
  if (!address.is_asked()) {
    watch::open_access(address);  // refuses what belongs to an address
    return;
  }
  auto metrics = std::make_unique<watch::RunMetrics>();
  server_ = std::make_unique<watch::PrometheusServer>(
      address, [page = metrics.get()] { return page->page(); });
  metrics_ = std::move(metrics);
  observers_.add(*metrics_);
  trainer.add_sink(*metrics_);
}

void RunWatch::watch_for_alerts(train::Trainer& trainer) {
  const train::TrainConfig& config = recipe_.config();
  std::set<AlertKind> off = alerts_off(config.alerts);
  if (off.size() == metrics::alert_names().size()) return;
  std::function<void(const metrics::Alert&)> count;
  if (metrics_) count = [page = metrics_.get()](const auto& alert) { page->alerted(alert); };
  const train::ParallelSettings& parallel = config.parallel;
  alerts_ = std::make_unique<watch::AlertWatch>(
      watch::AlertContext{.run_dir = config.run.dir,
                          .resume = resume_,
                          .lr = config.optim.lr,
                          .pid = ::getpid(),
                          .ranks_are_equal = parallel.pp == 1 && parallel.ep == 1,
                          .checkpoint_bytes = trainer.checkpoint_bytes()},
      std::move(off), config.alerts.webhook, count);
  observers_.add(*alerts_);
}

std::function<void(std::int64_t, const std::string&)> island_alerts(const std::string& dir,
                                                                    const std::string& ledger_dir,
                                                                    const std::string& webhook) {
  // Shared, as a function is copied.
  const auto outlet = std::make_shared<watch::AlertOutlet>(dir, webhook);
  return [outlet, ledger_dir](std::int64_t outer_step, const std::string& why) {
    outlet->tell(
        {.step = outer_step,
         .kind = AlertKind::kIslandLost,
         .severity = metrics::Severity::kWarning,
         .message = why,
         .command = fmt::format("atoll runs show {} --outer-steps", shell_word(ledger_dir))});
  };
}

void tell_rank_lost(const train::TrainConfig& config, std::int64_t step, const std::string& why,
                    const std::string& command) {
  if (alerts_off(config.alerts).count(AlertKind::kRankLost) > 0) return;
  watch::AlertOutlet(config.run.dir, config.alerts.webhook)
      .tell({.step = std::max<std::int64_t>(0, step),
             .kind = AlertKind::kRankLost,
             .severity = metrics::Severity::kError,
             .message = why,
             .command = command});
}

}  // namespace atl::cli
