#include "atoll/watch/prometheus.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace atl::watch {

namespace {

using metrics::prometheus_name;
using metrics::PrometheusText;
using metrics::PrometheusType;

// Metrics that have another name or unit in Prometheus: it wants base units, and counters for
// numbers that only grow.
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
    Renamed{"held_out_bits_per_byte", "atoll_held_out_compression_ratio", 0.125,
            PrometheusType::kGauge,
            "Bytes that a byte of held-out text would be coded in: bits per byte / 8."},
    Renamed{"lr", "atoll_learning_rate", 1, PrometheusType::kGauge, "Learning rate."},
    Renamed{"mfu", "atoll_model_flops_utilization", 1, PrometheusType::kGauge,
            "FLOP/s of the model over the measured peak, 0 to 1."},
    Renamed{"expert_dropped_fraction", "atoll_expert_dropped_ratio", 1, PrometheusType::kGauge,
            "Tokens that found no room at an expert, 0 to 1."},
    Renamed{"outer_sent_bytes", "atoll_outer_sent_bytes", 1, PrometheusType::kGauge,
            "Bytes that this island sent for the last outer step."},
    Renamed{"outer_received_bytes", "atoll_outer_received_bytes", 1, PrometheusType::kGauge,
            "Bytes that this island received for the last outer step."},
    Renamed{"outer_exchange_s", "atoll_outer_exchange_seconds", 1, PrometheusType::kGauge,
            "Time from the beginning of the last exchange between islands to its end."},
    Renamed{"outer_exposed_s", "atoll_outer_exposed_seconds", 1, PrometheusType::kGauge,
            "Time that training waited for the last exchange between islands."},
    Renamed{"bytes_sent", "atoll_step_sent_bytes", 1, PrometheusType::kGauge,
            "Bytes that a step sends, from the first rank to other data-parallel ranks."},
    Renamed{"system/cpu_fraction", "atoll_system_cpu_fraction", 1, PrometheusType::kGauge,
            "Part of all CPUs of the machine that was busy, 0 to 1."},
    Renamed{"system/process_cpus", "atoll_system_process_cpus", 1, PrometheusType::kGauge,
            "CPUs that this process kept busy."},
    Renamed{"system/memory_bytes", "atoll_system_memory_bytes", 1, PrometheusType::kGauge,
            "Memory of the machine that is taken."},
    Renamed{"system/process_memory_bytes", "atoll_system_process_memory_bytes", 1,
            PrometheusType::kGauge, "Memory that this process has taken."},
    Renamed{"system/gpu_memory_bytes", "atoll_system_gpu_memory_bytes", 1, PrometheusType::kGauge,
            "Memory of the GPU that is taken, by whomever."},
    Renamed{"system/disk_read_bytes_per_s", "atoll_system_disk_read_bytes_per_second", 1,
            PrometheusType::kGauge, "Read from all disks of the machine."},
    Renamed{"system/disk_written_bytes_per_s", "atoll_system_disk_written_bytes_per_second", 1,
            PrometheusType::kGauge, "Written to all disks of the machine."},
    Renamed{"system/disk_free_bytes", "atoll_system_disk_free_bytes", 1, PrometheusType::kGauge,
            "Room on the disk of the run's directory."},
    Renamed{"system/network_received_bytes_per_s", "atoll_system_network_received_bytes_per_second",
            1, PrometheusType::kGauge, "Received by the machine's network cards together."},
    Renamed{"system/network_sent_bytes_per_s", "atoll_system_network_sent_bytes_per_second", 1,
            PrometheusType::kGauge, "Sent by the machine's network cards together."},
};

constexpr std::string_view kAsRecorded = "As metrics.jsonl has it, at the last record.";

const Renamed* renamed(const std::string& metric) {
  const auto* const found = std::find_if(kRenamed.begin(), kRenamed.end(),
                                         [&](const Renamed& one) { return metric == one.metric; });
  return found == kRenamed.end() ? nullptr : found;
}

// Adds a metric that kRenamed does not have. Times, whose names end in "_ms" or "_s", are given in
// seconds.
void add_other(PrometheusText& page, const std::string& metric, double value) {
  struct Unit {
    std::string_view suffix;
    double seconds;
  };
  for (const Unit& unit : {Unit{"_ms", 1e-3}, Unit{"_s", 1.0}}) {
    if (!metric.ends_with(unit.suffix) || metric.ends_with("_per_s")) continue;
    const std::string base = metric.substr(0, metric.size() - unit.suffix.size());
    if (page.family(prometheus_name(base) + "_seconds", PrometheusType::kGauge, kAsRecorded)) {
      page.sample(unit.seconds * value);
    }
    return;
  }
  if (page.family(prometheus_name(metric), PrometheusType::kGauge, kAsRecorded)) page.sample(value);
}

}  // namespace

void RunMetrics::publish() {
  published_.back() = numbers_;
  published_.publish();
}

void RunMetrics::write(const metrics::Record& record) {
  for (const auto& [name, value] : record.values) {
    if (std::holds_alternative<std::string>(value)) continue;
    const double number = std::holds_alternative<double>(value)
                              ? std::get<double>(value)
                              : static_cast<double>(std::get<std::int64_t>(value));
    const auto known = places_.find(name);
    if (known != places_.end()) {
      numbers_.last[known->second].second = number;
    } else if (places_.size() < kMostFamilies) {
      places_.emplace(name, numbers_.last.size());
      numbers_.last.emplace_back(name, number);
    }
  }
  publish();
}

void RunMetrics::stepped(const metrics::StepFacts& facts) {
  numbers_.facts = facts;
  ++numbers_.steps;
  if (!std::isfinite(facts.loss) || !std::isfinite(facts.grad_norm)) ++numbers_.skipped;
  numbers_.steps_seconds += facts.seconds;
  numbers_.tokens += facts.tokens;
  numbers_.stepped_at_s = metrics::wall_time_now();
  publish();
}

void RunMetrics::checkpoint_saved(const std::filesystem::path&) {
  ++numbers_.checkpoints;
  publish();
}

void RunMetrics::ranks_lost(std::int64_t, int before, int now, const std::string&) {
  numbers_.ranks_lost += before - now;
  publish();
}

void RunMetrics::alerted(const metrics::Alert& alert) {
  ++alerts_.at(static_cast<std::size_t>(alert.kind));
}

std::string RunMetrics::page() const {
  using Type = PrometheusType;
  const std::lock_guard lock(reader_);
  const Numbers& now = published_.newest();
  PrometheusText page;
  const auto add = [&](const char* name, Type type, const char* help, double value) {
    if (page.family(name, type, help)) page.sample(value);
  };
  if (now.steps > 0) {
    add("atoll_run_step", Type::kGauge, "Steps that the run has taken.",
        static_cast<double>(now.facts.step));
    add("atoll_last_step_timestamp_seconds", Type::kGauge, "When the last step ended, since 1970.",
        now.stepped_at_s);
    add("atoll_last_step_seconds", Type::kGauge, "Time of the last step.", now.facts.seconds);
    add("atoll_last_step_loss", Type::kGauge, "Loss of the last step, in nats a token.",
        now.facts.loss);
    add("atoll_last_step_grad_norm", Type::kGauge,
        "Norm of the last step's gradient, before it was clipped.", now.facts.grad_norm);
  }
  add("atoll_steps_total", Type::kCounter, "Steps that this process has taken.",
      static_cast<double>(now.steps));
  add("atoll_steps_seconds_total", Type::kCounter, "Time of these steps together.",
      now.steps_seconds);
  add("atoll_steps_nonfinite_total", Type::kCounter, "Steps whose loss or gradient was not finite.",
      static_cast<double>(now.skipped));
  add("atoll_trained_tokens_total", Type::kCounter, "Tokens that this process has trained on.",
      static_cast<double>(now.tokens));
  add("atoll_checkpoints_total", Type::kCounter, "Checkpoints that this process has written.",
      static_cast<double>(now.checkpoints));
  add("atoll_ranks_lost_total", Type::kCounter, "Ranks that were lost while others went on.",
      static_cast<double>(now.ranks_lost));
  if (!now.facts.rank_seconds.empty()) {
    page.family("atoll_rank_micro_batch_seconds", Type::kGauge,
                "Forward and backward of a micro-batch on a rank, in the last step.");
    const std::size_t count = std::min(now.facts.rank_seconds.size(), kMostRanks);
    for (std::size_t rank = 0; rank < count; ++rank) {
      page.sample(now.facts.rank_seconds[rank], {{"rank", std::to_string(rank)}});
    }
  }
  page.family("atoll_alerts_total", Type::kCounter, "Alerts that were told, by kind.");
  for (std::size_t kind = 0; kind < alerts_.size(); ++kind) {
    page.sample(static_cast<double>(alerts_[kind]),
                {{"kind", metrics::name_of(static_cast<metrics::AlertKind>(kind))}});
  }
  for (const auto& [metric, value] : now.last) {
    if (const Renamed* known = renamed(metric)) {
      add(known->name, known->type, known->help, known->factor * value);
    } else {
      add_other(page, metric, value);
    }
  }
  return page.text();
}

}  // namespace atl::watch
