#include "atoll/watch/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace atl::watch {

namespace {

// Metrics whose name or unit is another in Prometheus: base units, and what only grows is a
// counter.
struct Renamed {
  const char* metric;
  const char* name;
  double factor;
  PrometheusType type;
  const char* help;
};
constexpr std::array kRenamed = {
    Renamed{"tokens", "atoll_tokens_total", 1, PrometheusType::kCounter,
            "Tokens trained on since the run began."},
    Renamed{"tokens_per_s", "atoll_tokens_per_second", 1, PrometheusType::kGauge,
            "Tokens trained on in a second, since the step line before."},
    Renamed{"step_ms", "atoll_step_seconds", 1e-3, PrometheusType::kGauge,
            "Mean time of a step since the step line before."},
    Renamed{"loss", "atoll_loss", 1, PrometheusType::kGauge,
            "Mean loss since the step line before, in nats a token."},
    Renamed{"held_out_loss", "atoll_held_out_loss", 1, PrometheusType::kGauge,
            "Loss on held-out text, in nats a token."},
    Renamed{"lr", "atoll_learning_rate", 1, PrometheusType::kGauge, "Learning rate."},
    Renamed{"mfu", "atoll_model_flops_utilization", 1, PrometheusType::kGauge,
            "FLOP/s of the model over the measured peak, 0 to 1."},
    Renamed{"bytes_sent", "atoll_step_sent_bytes", 1, PrometheusType::kGauge,
            "Bytes that a step sends, from the first rank to other data-parallel ranks."},
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string escaped(std::string_view text, bool is_label) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && is_label) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

const Renamed* renamed(const std::string& metric) {
  const auto* const found = std::find_if(kRenamed.begin(), kRenamed.end(),
                                         [&](const Renamed& one) { return metric == one.metric; });
  return found == kRenamed.end() ? nullptr : found;
}

// Of a metric without a line above: a last "_ms" is seconds, as all times are.
void add_other(PrometheusText& page, const std::string& metric, double value) {
  constexpr std::string_view kMilliseconds = "_ms";
  const bool is_ms = metric.ends_with(kMilliseconds);
  const std::string base = is_ms ? metric.substr(0, metric.size() - kMilliseconds.size()) : metric;
  const bool is_new =
      page.family(prometheus_name(base) + (is_ms ? "_seconds" : ""), PrometheusType::kGauge,
                  "As metrics.jsonl has it, at the last record.");
  if (is_new) page.sample(is_ms ? 1e-3 * value : value);
}

}  // namespace

std::string prometheus_name(std::string_view metric) {
  std::string name = "atoll_";
  for (const char c : metric) {
    name += is_letter(c) || (c >= '0' && c <= '9') ? c : '_';
  }
  // promlint takes an abbreviation for a unit that is none of its base units.
  if (name.ends_with("_per_s")) name += "econd";
  for (const char* kept : {"_total", "_sum", "_count", "_bucket", "_info"}) {
    if (name.ends_with(kept)) name += "_value";
  }
  return name;
}

bool PrometheusText::family(const std::string& name, PrometheusType type, std::string_view help) {
  name_ = name;
  if (!begun_.insert(name).second) return false;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name,
                       type == PrometheusType::kCounter ? "counter" : "gauge");
  return true;
}

void PrometheusText::sample(double value, const Labels& labels) {
  text_ += name_;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first,
                         escaped(labels[i].second, true));
  }
  if (!labels.empty()) text_ += "}";
  text_ += " " + number(value) + "\n";
}

void RunMetrics::write(const metrics::Record& record) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : record.values) {
    if (std::holds_alternative<std::string>(value)) continue;
    if (last_.size() >= kMostFamilies && last_.count(name) == 0) continue;
    last_[name] = std::holds_alternative<double>(value)
                      ? std::get<double>(value)
                      : static_cast<double>(std::get<std::int64_t>(value));
  }
}

void RunMetrics::stepped(const metrics::StepFacts& facts) {
  const std::lock_guard lock(mutex_);
  facts_ = facts;
  ++steps_;
  stepped_at_s_ = metrics::wall_time_now();
}

void RunMetrics::checkpoint_saved(const std::filesystem::path&) {
  const std::lock_guard lock(mutex_);
  ++checkpoints_;
}

void RunMetrics::ranks_lost(std::int64_t, int before, int now, const std::string&) {
  const std::lock_guard lock(mutex_);
  ranks_lost_ += before - now;
}

void RunMetrics::alerted(const metrics::Alert& alert) {
  const std::lock_guard lock(mutex_);
  ++alerts_[alert.kind];
}

std::string RunMetrics::page() const {
  using Type = PrometheusType;
  const std::lock_guard lock(mutex_);
  PrometheusText page;
  const auto add = [&](const char* name, Type type, const char* help, double value) {
    if (page.family(name, type, help)) page.sample(value);
  };
  if (steps_ > 0) {
    add("atoll_run_step", Type::kGauge, "Steps that the run has taken.",
        static_cast<double>(facts_.step));
    add("atoll_last_step_timestamp_seconds", Type::kGauge, "When the last step ended, since 1970.",
        stepped_at_s_);
    add("atoll_last_step_seconds", Type::kGauge, "Time of the last step.", facts_.seconds);
    add("atoll_last_step_loss", Type::kGauge, "Loss of the last step, in nats a token.",
        facts_.loss);
  }
  add("atoll_steps_total", Type::kCounter, "Steps that this process has taken.",
      static_cast<double>(steps_));
  add("atoll_checkpoints_total", Type::kCounter, "Checkpoints that this process has written.",
      static_cast<double>(checkpoints_));
  add("atoll_ranks_lost_total", Type::kCounter, "Ranks that were lost while others went on.",
      static_cast<double>(ranks_lost_));
  if (!facts_.rank_seconds.empty()) {
    page.family("atoll_rank_micro_batch_seconds", Type::kGauge,
                "Forward and backward of a micro-batch on a rank, in the last step.");
    const std::size_t count = std::min(facts_.rank_seconds.size(), kMostRanks);
    for (std::size_t rank = 0; rank < count; ++rank) {
      page.sample(facts_.rank_seconds[rank], {{"rank", std::to_string(rank)}});
    }
  }
  page.family("atoll_alerts_total", Type::kCounter, "Alerts that were told, by kind.");
  for (const std::string& kind : metrics::alert_names()) {
    const auto found = alerts_.find(metrics::alert_kind(kind));
    page.sample(found == alerts_.end() ? 0 : static_cast<double>(found->second), {{"kind", kind}});
  }
  for (const auto& [metric, value] : last_) {
    if (const Renamed* known = renamed(metric)) {
      add(known->name, known->type, known->help, known->factor * value);
    } else {
      add_other(page, metric, value);
    }
  }
  return page.text();
}

}  // namespace atl::watch
