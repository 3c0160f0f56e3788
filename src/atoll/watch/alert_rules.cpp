#include "atoll/watch/alert_rules.h"

#include <fmt/format.h>

#include <cmath>

namespace atl::watch {

using metrics::shell_word;

AlertRules::AlertRules(AlertContext context, std::set<AlertKind> off)
    : context_(std::move(context)),
      off_(std::move(off)),
      straggler_(context_.ranks_are_equal),
      checkpoint_(context_.checkpoint_bytes) {}

void AlertRules::add(std::vector<Alert>& alerts, AlertKind kind, Severity severity,
                     std::string message, std::string command) const {
  if (message.empty() || off_.count(kind) > 0) return;
  alerts.push_back({.step = step_,
                    .kind = kind,
                    .severity = severity,
                    .message = std::move(message),
                    .command = std::move(command)});
}

std::string AlertRules::trace_command() const {
  return fmt::format("atoll trace {} --steps 5", shell_word(context_.run_dir));
}

std::string AlertRules::with_lower_rate() const {
  return fmt::format("{} --optim.lr={:g}", context_.resume, context_.lr / 2);
}

std::vector<Alert> AlertRules::stepped(const metrics::StepFacts& facts) {
  std::vector<Alert> alerts;
  step_ = facts.step;
  stall_.step(facts.time_s, facts.seconds);
  const bool is_finite = std::isfinite(facts.loss) && std::isfinite(facts.grad_norm);
  if (!is_finite) {
    if (was_finite_) {
      add(alerts, AlertKind::kNonfinite, Severity::kError,
          fmt::format("the step is not finite: loss {}, grad_norm {}", facts.loss, facts.grad_norm),
          with_lower_rate());
    }
    was_finite_ = false;
    return alerts;
  }
  was_finite_ = true;
  const std::string plot = fmt::format("atoll runs plot {}", shell_word(context_.run_dir));
  add(alerts, AlertKind::kSpike, Severity::kWarning, spike_.step(facts.loss), plot);
  add(alerts, AlertKind::kDivergence, Severity::kError, divergence_.step(facts.loss),
      with_lower_rate());
  add(alerts, AlertKind::kThroughput, Severity::kWarning, throughput_.step(facts.seconds),
      trace_command());
  add(alerts, AlertKind::kStraggler, Severity::kWarning,
      straggler_.step(facts.seconds, facts.rank_seconds), trace_command());
  return alerts;
}

std::vector<Alert> AlertRules::tick(double now_s, std::optional<std::uint64_t> free_bytes) {
  std::vector<Alert> alerts;
  add(alerts, AlertKind::kStall, Severity::kError, stall_.tick(now_s),
      fmt::format("ps -L -o lwp,stat,pcpu,wchan:32,comm -p {}", context_.pid));
  add(alerts, AlertKind::kCheckpointLate, Severity::kWarning, checkpoint_.tick(now_s),
      fmt::format("df -h {}", shell_word(context_.run_dir)));
  if (free_bytes) {
    add(alerts, AlertKind::kDiskLow, Severity::kError,
        disk_.tick(*free_bytes, context_.checkpoint_bytes),
        fmt::format("du -sh {}/*", shell_word(context_.run_dir)));
  }
  return alerts;
}

std::vector<Alert> AlertRules::ranks_lost(std::int64_t step, int before, int now,
                                          const std::string& why, double now_s) {
  step_ = step;
  stall_.resumed(now_s);
  // With fewer ranks steps take another time, so earlier times say nothing.
  throughput_ = {};
  straggler_ = StragglerRule(context_.ranks_are_equal);
  std::vector<Alert> alerts;
  add(alerts, AlertKind::kRankLost, Severity::kError,
      fmt::format("{} of {} ranks are left{}", now, before, why.empty() ? "" : ": " + why),
      "dmesg --ctime | tail -n 20");
  return alerts;
}

void AlertRules::checkpoint_begun(std::int64_t step, double now_s) {
  checkpoint_.begun(step, now_s);
  stall_.hold(true, now_s);
}

void AlertRules::checkpoint_saved(double now_s, std::uint64_t bytes) {
  checkpoint_.saved(now_s);
  stall_.hold(false, now_s);
  if (bytes > 0) context_.checkpoint_bytes = bytes;
}

}  // namespace atl::watch
