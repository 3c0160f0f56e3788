#include "atoll/serve/api/load_record.h"

#include <string>

namespace atl::serve::api {

namespace {

constexpr double kMedian = 0.5;
constexpr double kTail = 0.95;

void add_share(metrics::Record& record, const char* name, std::int64_t part, std::int64_t whole) {
  if (whole > 0) record.add(name, static_cast<double>(part) / static_cast<double>(whole));
}

void add_latency(metrics::Record& record, const std::string& name, const HistogramCounts& before,
                 const HistogramCounts& now) {
  const HistogramCounts added = now - before;
  if (added.total() == 0) return;
  record.add("latency/" + name + "_p50_s", added.quantile(kMedian));
  record.add("latency/" + name + "_p95_s", added.quantile(kTail));
}

}  // namespace

LoadCounts LoadCounts::of(const RequestTimes& times, const Generator& generator) {
  return {.stats = generator.stats(),
          .queue = times.queue.counts(),
          .first_token = times.first_token.counts(),
          .inter_token = times.inter_token.counts()};
}

metrics::Record load_record(const LoadCounts& before, const LoadCounts& now, double seconds) {
  const GeneratorStats &a = before.stats, &b = now.stats;
  metrics::Record record;
  record.add("requests/running", b.running);
  record.add("requests/waiting", b.waiting);
  const auto add_rate = [&](const char* name, std::int64_t from, std::int64_t to) {
    record.add(name, static_cast<double>(to - from) / seconds);
  };
  add_rate("requests/finished_per_s", a.finished, b.finished);
  record.add("requests/cancelled", b.cancelled - a.cancelled);
  record.add("requests/rejected", b.rejected - a.rejected);
  record.add("requests/failed", b.failed - a.failed);
  record.add("requests/preempted", b.preempted - a.preempted);
  add_rate("tokens/prompt_per_s", a.prompt_tokens, b.prompt_tokens);
  add_rate("tokens/generated_per_s", a.new_tokens, b.new_tokens);
  add_share(record, "tokens/cached_share", b.cached_tokens - a.cached_tokens,
            b.prompt_tokens - a.prompt_tokens);
  add_share(record, "tokens/right_draft_share", b.right_guesses - a.right_guesses,
            b.guessed_tokens - a.guessed_tokens);
  add_rate("steps_per_s", a.steps, b.steps);
  add_share(record, "cache/running_share", b.blocks_in_use, b.blocks);
  add_share(record, "cache/prefixes_share", b.blocks_kept, b.blocks);
  add_latency(record, "queue", before.queue, now.queue);
  add_latency(record, "first_token", before.first_token, now.first_token);
  add_latency(record, "between_tokens", before.inter_token, now.inter_token);
  return record;
}

}  // namespace atl::serve::api
