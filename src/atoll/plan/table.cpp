#include "atoll/plan/table.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "atoll/base/quantity.h"

namespace atl::plan {

namespace {

constexpr double kMib = 1 << 20;

std::string pipeline_text(const Layout& at) {
  if (at.stages == 1) return "-";
  return at.chunks > 0 ? fmt::format("{}/{}", at.schedule, at.chunks) : at.schedule;
}

std::string short_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} s", seconds);
}

/// A reason without the numbers in which layouts differ.
std::string kind_of(const std::string& why) {
  std::string kind;
  for (const char c : why) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == ',';
    if (!is_digit) kind += c;
  }
  return kind;
}

struct Reason {
  std::string kind;
  const Refusal* first = nullptr;
  std::size_t count = 0;
};

std::vector<Reason> reasons(const std::vector<Refusal>& refused) {
  std::vector<Reason> all;
  for (const Refusal& refusal : refused) {
    const std::string kind = kind_of(refusal.why);
    auto at = std::find_if(all.begin(), all.end(), [&](const Reason& r) { return r.kind == kind; });
    if (at == all.end()) at = all.insert(all.end(), {kind, &refusal, 0});
    ++at->count;
  }
  return all;
}

nlohmann::json to_json(const Layout& at) {
  return {{"dp", at.data},
          {"tp", at.tensor},
          {"pp", at.stages},
          {"cp", at.context},
          {"ep", at.experts},
          {"zero", at.zero},
          {"recompute", at.recompute},
          {"schedule", at.schedule},
          {"chunks", at.chunks},
          {"micro_batch", at.micro_batch}};
}

}  // namespace

std::string ranking_table(const Ranking& ranking, const Question& question, bool all) {
  std::string text = fmt::format(
      "layouts of {}, {} a host, {} a rank; {}\n\n"
      "      dp   tp   pp   cp   ep  schedule       ZeRO  recompute  micro-batch      memory       "
      "step "
      " "
      "bubble   dp MB   tp MB   pp MB   cp MB   ep MB\n",
      counted(question.ranks, "rank"), question.figures.ranks_per_host,
      format_bytes(question.memory_bytes), question.figures.machine);
  std::size_t place = 0;
  for (const Row& row : ranking.rows) {
    const Layout& at = row.layout;
    const SentBytes& sent = row.estimate.sent;
    text += fmt::format(
        "{:>3} {:>4} {:>4} {:>4} {:>4} {:>4}  {:<14} {:>4}  {:<9}  {:>11}  {:>6.0f} MiB  {:>9}  "
        "{:>5.1f}%"
        "  {:>6.1f}  {:>6.1f}  {:>6.1f}  {:>6.1f}  {:>6.1f}\n",
        ++place, at.data, at.tensor, at.stages, at.context, at.experts, pipeline_text(at), at.zero,
        at.recompute, at.micro_batch, static_cast<double>(row.memory.bytes) / kMib,
        short_seconds(row.estimate.step_seconds), 100 * row.estimate.bubble, sent.data / 1e6,
        sent.tensor / 1e6, sent.stages / 1e6, sent.context / 1e6, sent.experts / 1e6);
  }
  text += fmt::format(
      "\nmemory: planned, of the rank with most; MB: sent a step by the rank that sends most\n"
      "{} of {} are slower than these; {} refused\n",
      format_count(static_cast<std::int64_t>(ranking.slower)),
      counted(static_cast<std::int64_t>(ranking.all), "layout"),
      format_count(static_cast<std::int64_t>(ranking.refused.size())));
  if (all) {
    for (const Refusal& one : ranking.refused) {
      text += fmt::format("  {}: {}\n", describe(one.layout), one.why);
    }
    return text;
  }
  for (const Reason& reason : reasons(ranking.refused)) {
    text += fmt::format("  {:>6}  {}: {}\n", format_count(static_cast<std::int64_t>(reason.count)),
                        describe(reason.first->layout), reason.first->why);
  }
  return text;
}

std::string ranking_json(const Ranking& ranking, const Question& question) {
  nlohmann::json rows = nlohmann::json::array(), refused = nlohmann::json::array();
  for (const Row& row : ranking.rows) {
    const Estimate& at = row.estimate;
    nlohmann::json one = to_json(row.layout);
    one["memory_bytes"] = row.memory.bytes;
    one["memory_rank"] = row.memory.rank;
    one["step_seconds"] = at.step_seconds;
    one["passes_seconds"] = at.passes_seconds;
    one["tensor_seconds"] = at.tensor_seconds;
    one["context_seconds"] = at.context_seconds;
    one["expert_seconds"] = at.expert_seconds;
    one["reduce_seconds"] = at.reduce_seconds;
    one["update_seconds"] = at.update_seconds;
    one["bubble"] = at.bubble;
    one["sent_bytes"] = {{"data", at.sent.data},
                         {"tensor", at.sent.tensor},
                         {"pipeline", at.sent.stages},
                         {"context", at.sent.context},
                         {"experts", at.sent.experts}};
    one["arguments"] = as_arguments(row.layout);
    rows.push_back(std::move(one));
  }
  for (const Refusal& refusal : ranking.refused) {
    nlohmann::json one = to_json(refusal.layout);
    one["why"] = refusal.why;
    refused.push_back(std::move(one));
  }
  return nlohmann::json({{"ranks", question.ranks},
                         {"ranks_per_host", question.figures.ranks_per_host},
                         {"machine", question.figures.machine},
                         {"memory_bytes", question.memory_bytes},
                         {"all", ranking.all},
                         {"slower", ranking.slower},
                         {"layouts", std::move(rows)},
                         {"refused", std::move(refused)}})
      .dump();
}

}  // namespace atl::plan
