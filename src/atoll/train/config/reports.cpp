// eval.*, checkpoint.*, log.*, alerts.* and metrics.*: what a run says and keeps.

#include "atoll/base/error.h"
#include "atoll/metrics/alert.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/rules.h"
#include "atoll/train/progress/held_out_history.h"

namespace atl::train {

namespace {

void check_held_out(const TrainConfig& config, const Settings& s) {
  if (config.eval.every == 0 || config.data.text.empty() || config.data.held_out > 0) return;
  throw user_error(
      "{} and {}: no text is held out to evaluate on; hold some out, or set eval.every=0",
      named(s, "eval.every"), named(s, "data.held_out"));
}

void check_alert_kinds(const TrainConfig& config, const Settings& s) {
  for (const std::string& kind : config.alerts.off) {
    if (kind == "all") continue;
    try {
      metrics::alert_kind(kind);
    } catch (const Error& error) {
      throw user_error("{}: {}; or all", named(s, "alerts.off"), error.what());
    }
  }
}

void check_webhook(const TrainConfig& config, const Settings& s) {
  const std::string& url = config.alerts.webhook;
  if (url.empty() || url.starts_with("http://") || url.starts_with("https://")) return;
  throw user_error("{} must be an address that begins with http:// or https://",
                   named(s, "alerts.webhook"));
}

}  // namespace

void add_reporting(SettingRegistry& settings, TrainConfig& c) {
  settings.group("eval", "Loss on held-out text.", Scope::kIsland);
  settings
      .add("eval.every", &c.eval.every, "Steps between evaluations; 0: only at the end.",
           at_least(0))
      .checked("Needs text that is held out: data.held_out.", check_held_out);
  settings.add("eval.max_tokens", &c.eval.max_tokens,
               "Held-out tokens of an evaluation, rounded up to whole sequences; 0: all.",
               at_least(0));
  settings.add(
      "eval.samples", &c.eval.samples,
      "Texts that the model writes after each evaluation, to standard output and to samples.jsonl: "
      "as many for each of eval.prompts; 0: none. A checkpoint is written for them.",
      between(0, 1000));
  settings
      .add("eval.prompts", &c.eval.prompts,
           "What these texts begin with; none: nothing, the model begins a new text.")
      .only_with("eval.samples", changed("1"));
  settings
      .add("eval.sample_tokens", &c.eval.sample_tokens, "Tokens that each of them has at most.",
           between(1, 1 << 20))
      .only_with("eval.samples", changed("1"));
  settings.group("checkpoint", "What a stopped run goes on from.", Scope::kIsland);
  settings.add("checkpoint.every", &c.checkpoint.every,
               "Steps between checkpoints; 0: only at the end and when interrupted.", at_least(0));
  settings.add("checkpoint.keep", &c.checkpoint.keep, "Newest checkpoints that are kept.",
               at_least(1));
  settings
      .add("checkpoint.keep_best", &c.checkpoint.keep_best,
           "Checkpoints of the lowest held-out losses that are kept beside the newest: written at "
           "evaluations (eval.every) that are among them; 0: none.",
           between(0, static_cast<double>(HeldOutHistory::kMost)))
      .needs("eval.every", changed("100"), "it goes by evaluations");
  settings.add("checkpoint.async", &c.checkpoint.async,
               "Write checkpoints beside the steps that follow, from a copy in memory of what each "
               "rank writes; the same files.");
  settings.group("log", "What is said on the way; metrics.jsonl is always written.",
                 Scope::kIsland);
  settings.add("log.every", &c.log.every, "Steps between lines.", at_least(1));
  settings.add("log.format", &c.log.format, "Lines for people, or JSON for programs.",
               one_of({"text", "json"}));
  settings.add("log.tensorboard", &c.log.tensorboard, "Write TensorBoard event files too.");
  settings.add("log.trace", &c.log.trace,
               "File to write a trace of some steps to, for chrome://tracing and Perfetto: what "
               "every rank does when, on one clock; empty: none.");
  settings.add("log.trace_after", &c.log.trace_after,
               "Steps of this start that are taken before the trace begins.", at_least(0));
  settings.add("log.trace_steps", &c.log.trace_steps,
               "Steps in the trace, with evaluations and checkpoints between them.", at_least(1));
}

void add_watching(SettingRegistry& settings, TrainConfig& c) {
  settings.group(
      "alerts",
      "What is said when something is wrong with the run: docs/alerts.md. All alerts are on by "
      "default.",
      Scope::kHost);
  settings
      .add("alerts.off", &c.alerts.off,
           "Kinds of alerts that are not told: nonfinite, spike, divergence, stall, throughput, "
           "straggler, rank_lost, island_lost, checkpoint_late, disk_low; or all.")
      .checked("", check_alert_kinds);
  settings
      .add("alerts.webhook", &c.alerts.webhook,
           "http:// or https:// address that each alert is posted to, as JSON; empty: none.")
      .checked("", check_webhook);
  settings.group("metrics", "Metrics as Prometheus reads them: docs/prometheus.md.", Scope::kHost);
  settings.add("metrics.listen", &c.metrics.listen,
               "HOST:PORT where the rank that leads serves them at /metrics; port 0: a free one, "
               "which the log names; empty: nowhere. With train --islands N and with servers that "
               "-n starts, each process takes the next port.");
  settings.add("metrics.token_file", &c.metrics.token_file,
               "File with a secret that Prometheus must show; needed unless HOST is this machine.");
  settings.add("metrics.certificate", &c.metrics.certificate,
               "PEM file to serve them by TLS with, and metrics.key.");
  settings.add("metrics.key", &c.metrics.key, "PEM file with its key.");
}

}  // namespace atl::train
