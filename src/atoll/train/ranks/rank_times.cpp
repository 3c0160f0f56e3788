#include "atoll/train/ranks/rank_times.h"

#include <fmt/format.h>

#include <fstream>

#include "atoll/metrics/record.h"

namespace atl::train {

namespace {

constexpr std::chrono::seconds kEvery{1};

}  // namespace

void RankTimes::add(std::int64_t step, const std::vector<RankFacts>& facts) {
  if (facts.size() != sums_.size()) {
    sums_.assign(facts.size(), {});
    steps_ = 0;
  }
  for (std::size_t i = 0; i < facts.size(); ++i) {
    sums_[i].step_seconds += facts[i].step_seconds;
    sums_[i].compute_seconds += facts[i].compute_seconds;
    sums_[i].waited_seconds += facts[i].waited_seconds;
  }
  ++steps_;
  const Clock::time_point now = Clock::now();
  if (now - written_at_ < kEvery) return;
  written_at_ = now;
  write(step);
  sums_.clear();
}

void RankTimes::write(std::int64_t step) const {
  std::string text = fmt::format("{{\"step\":{},\"time\":{:.3f},\"steps\":{}", step,
                                 metrics::wall_time_now(), steps_);
  const auto list = [&](const char* name, double RankFacts::*member) {
    text += fmt::format(",\"{}\":[", name);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      text += fmt::format("{}{:.4g}", i == 0 ? "" : ",",
                          1e3 * sums_[i].*member / static_cast<double>(steps_));
    }
    text += "]";
  };
  list("step_ms", &RankFacts::step_seconds);
  list("compute_ms", &RankFacts::compute_seconds);
  list("waited_ms", &RankFacts::waited_seconds);
  text += "}\n";
  const std::filesystem::path next = dir_ / (std::string(kRankTimesFile) + ".next");
  {
    std::ofstream file(next, std::ios::binary | std::ios::trunc);
    file << text;
    if (!file.flush()) return;
  }
  std::error_code ignored;
  std::filesystem::rename(next, dir_ / kRankTimesFile, ignored);
}

}  // namespace atl::train
