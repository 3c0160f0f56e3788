#include "atoll/serve/api/metrics.h"

#include <algorithm>
#include <numeric>

namespace atl::serve::api {

namespace {

using metrics::PrometheusText;
using metrics::PrometheusType;

void add(PrometheusText& page, const char* name, PrometheusType type, const char* help,
         std::int64_t value) {
  if (page.family(name, type, help)) page.sample(static_cast<double>(value));
}

void add_requests(PrometheusText& page, const GeneratorStats& stats) {
  constexpr auto kGauge = PrometheusType::kGauge;
  constexpr auto kCounter = PrometheusType::kCounter;
  add(page, "atoll_requests_running", kGauge, "Sequences that have memory.", stats.running);
  add(page, "atoll_requests_waiting", kGauge, "Sequences in the queue.", stats.waiting);
  add(page, "atoll_waiting_prompt_tokens", kGauge, "Tokens of the prompts in the queue.",
      stats.waiting_tokens);
  add(page, "atoll_requests_finished_total", kCounter, "Sequences that ended by themselves.",
      stats.finished);
  add(page, "atoll_requests_cancelled_total", kCounter,
      "Sequences whose client went away, or that ended with the server.", stats.cancelled);
  add(page, "atoll_requests_rejected_total", kCounter, "Sequences refused at a full queue.",
      stats.rejected);
  add(page, "atoll_requests_failed_total", kCounter, "Sequences that ended in an error.",
      stats.failed);
  add(page, "atoll_requests_preempted_total", kCounter,
      "Times that a sequence lost its memory to another and was computed anew.", stats.preempted);
}

void add_tokens(PrometheusText& page, const GeneratorStats& stats) {
  constexpr auto kGauge = PrometheusType::kGauge;
  constexpr auto kCounter = PrometheusType::kCounter;
  add(page, "atoll_prompt_tokens_total", kCounter, "Tokens of prompts, also those of the cache.",
      stats.prompt_tokens);
  add(page, "atoll_prefix_cache_hit_tokens_total", kCounter,
      "Tokens of prompts whose keys and values were in the cache.", stats.cached_tokens);
  add(page, "atoll_generated_tokens_total", kCounter, "Tokens that were generated.",
      stats.new_tokens);
  add(page, "atoll_generation_steps_total", kCounter, "Steps of the model.", stats.steps);
  add(page, "atoll_cache_blocks", kGauge, "Blocks of the cache of keys and values.", stats.blocks);
  if (page.family("atoll_cache_blocks_used", kGauge, "Of these, those that hold something.")) {
    page.sample(static_cast<double>(stats.blocks_in_use), {{"by", "running"}});
    page.sample(static_cast<double>(stats.blocks_kept), {{"by", "prefixes"}});
  }
}

// Of machines that have some of the layers each.
void add_stages(PrometheusText& page, const GeneratorStats& stats) {
  if (stats.stages.empty()) return;
  constexpr auto kGauge = PrometheusType::kGauge;
  add(page, "atoll_stage_restarts_total", PrometheusType::kCounter,
      "Times that a stage was lost and all sequences were computed again.", stats.restarts);
  const auto each = [&](const char* name, const char* help, const auto& value) {
    if (!page.family(name, kGauge, help)) return;
    for (const StageStatus& stage : stats.stages) {
      page.sample(value(stage), {{"stage", stage.address}});
    }
  };
  each("atoll_stage_up", "Whether the stage has its layers and computes.",
       [](const StageStatus& stage) { return stage.is_up ? 1.0 : 0.0; });
  each("atoll_stage_step_seconds", "Time that the stage computes for a step, lately.",
       [](const StageStatus& stage) { return stage.step_seconds; });
  each("atoll_stage_round_trip_seconds", "Time of a heartbeat to the stage and back, lately.",
       [](const StageStatus& stage) { return stage.round_trip_seconds; });
}

}  // namespace

void Histogram::observe(double seconds) {
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += seconds;
}

HistogramCounts Histogram::counts() const {
  const std::lock_guard lock(mutex_);
  return {.of_bound = counts_};
}

std::uint64_t HistogramCounts::total() const {
  return std::accumulate(of_bound.begin(), of_bound.end(), std::uint64_t{0});
}

double HistogramCounts::quantile(double q) const {
  const double wanted = q * static_cast<double>(total());
  double before = 0;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) {
    const auto here = static_cast<double>(of_bound[i]);
    if (here > 0 && before + here >= wanted) {
      const double low = i == 0 ? 0 : Histogram::kBounds[i - 1];
      return low + (Histogram::kBounds[i] - low) * (wanted - before) / here;
    }
    before += here;
  }
  return Histogram::kBounds.back();
}

HistogramCounts HistogramCounts::operator-(const HistogramCounts& earlier) const {
  HistogramCounts since = *this;
  for (std::size_t i = 0; i < of_bound.size(); ++i) since.of_bound[i] -= earlier.of_bound[i];
  return since;
}

void Histogram::write(metrics::PrometheusText& page, const char* name, const char* help) const {
  const std::lock_guard lock(mutex_);
  page.histogram(name, help, kBounds, counts_, sum_);
}

void add_metrics(metrics::PrometheusText& page, const RequestTimes& times,
                 const Generator* generator) {
  if (generator != nullptr) {
    const GeneratorStats stats = generator->stats();
    add_requests(page, stats);
    add_tokens(page, stats);
    add_stages(page, stats);
  }
  times.queue.write(page, "atoll_queue_seconds", "Time of a sequence in the queue.");
  times.prefill.write(page, "atoll_prefill_seconds",
                      "Time from the queue to a sequence's first token.");
  times.first_token.write(page, "atoll_time_to_first_token_seconds",
                          "Time from a request to a sequence's first token.");
  times.inter_token.write(page, "atoll_inter_token_seconds",
                          "Time from one token of a sequence to the next.");
  times.decode.write(page, "atoll_decode_seconds",
                     "Time from a sequence's first token to its end.");
  times.whole.write(page, "atoll_request_seconds", "Time from a request to a sequence's end.");
}

}  // namespace atl::serve::api
