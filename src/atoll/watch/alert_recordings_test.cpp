// The rules over what real runs of the recipes told (testdata/*.jsonl: metrics.jsonl of runs with
// log.every = 1, of which only some metrics were kept), as they were and with faults put in.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "atoll/base/files/test_paths.h"
#include "atoll/metrics/jsonl_sink.h"
#include "atoll/watch/alert_rules.h"

namespace atl::watch {
namespace {

namespace fs = std::filesystem;
using metrics::StepFacts;

double value_of(const metrics::Record& record, const std::string& wanted, double otherwise) {
  for (const auto& [name, value] : record.values) {
    if (name != wanted) continue;
    return std::holds_alternative<double>(value)
               ? std::get<double>(value)
               : static_cast<double>(std::get<std::int64_t>(value));
  }
  return otherwise;
}

// The steps of a recording, on a clock that counts the time of steps alone.
std::vector<StepFacts> steps_of(const fs::path& file) {
  std::vector<StepFacts> steps;
  double now_s = 0;
  for (const metrics::Record& record : metrics::read_jsonl(file)) {
    const double seconds = value_of(record, "step_ms", 0) / 1e3;
    if (seconds == 0) continue;  // of something else
    StepFacts facts = {.step = record.step,
                       .time_s = now_s += seconds,
                       .seconds = seconds,
                       .loss = value_of(record, "loss", NAN),
                       .grad_norm = value_of(record, "grad_norm", NAN)};
    // Of the ranks the slowest alone is known, and by how much it is slower than the fastest.
    const auto ranks = static_cast<std::size_t>(value_of(record, "ranks", 1));
    if (ranks > 1) {
      facts.rank_seconds.assign(ranks, 1);
      facts.rank_seconds.at(static_cast<std::size_t>(value_of(record, "slowest_rank", 0))) +=
          value_of(record, "slowest_rank_excess", 0);
    }
    steps.push_back(facts);
  }
  return steps;
}

std::vector<fs::path> recordings() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(test_source_dir() / "src/atoll/watch/testdata")) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  return files;
}

std::vector<Alert> replay(const std::vector<StepFacts>& steps) {
  AlertRules rules({.run_dir = "run", .resume = "atoll train", .lr = 1e-3}, {});
  std::vector<Alert> all;
  for (const StepFacts& facts : steps) {
    // The clock goes on in the step too: no stall is told of in a step that ends.
    for (double now = facts.time_s - facts.seconds; now < facts.time_s; now += 0.25) {
      for (Alert& alert : rules.tick(now, std::nullopt)) all.push_back(std::move(alert));
    }
    for (Alert& alert : rules.stepped(facts)) all.push_back(std::move(alert));
  }
  return all;
}

// Of the first alert of a kind: how many steps, and seconds, after the fault it came.
void expect_in_time(const std::vector<StepFacts>& steps, std::size_t fault, AlertKind kind,
                    const fs::path& file) {
  for (const Alert& alert : replay(steps)) {
    if (alert.kind != kind) continue;
    const double begin_s = steps[fault].time_s - steps[fault].seconds;
    for (const StepFacts& facts : steps) {
      if (facts.step != alert.step) continue;
      EXPECT_GE(facts.step, steps[fault].step) << file << ": before the fault";
      EXPECT_TRUE(facts.step <= steps[fault].step + 1 || facts.time_s - begin_s <= 5)
          << file << ": " << to_line(alert);
    }
    return;
  }
  ADD_FAILURE() << file << ": no alert of " << metrics::name_of(kind);
}

TEST(Recordings, OfRunsThatAreWellRaiseNoAlert) {
  ASSERT_GE(recordings().size(), 4u);
  for (const fs::path& file : recordings()) {
    const std::vector<StepFacts> steps = steps_of(file);
    EXPECT_GE(steps.size(), 60u) << file;
    for (const Alert& alert : replay(steps)) ADD_FAILURE() << file << ": " << to_line(alert);
  }
}

TEST(Recordings, WithAFaultRaiseItsAlertWithinTwoStepsOrFiveSeconds) {
  for (const fs::path& file : recordings()) {
    const std::vector<StepFacts> steps = steps_of(file);
    const std::size_t fault = steps.size() * 3 / 4;

    std::vector<StepFacts> nan = steps;
    nan[fault].loss = std::numeric_limits<double>::quiet_NaN();
    expect_in_time(nan, fault, AlertKind::kNonfinite, file);

    std::vector<StepFacts> spike = steps;
    spike[fault].loss *= 2;
    expect_in_time(spike, fault, AlertKind::kSpike, file);

    RecentValues usual(200);
    for (const StepFacts& facts : steps) usual.add(facts.seconds);
    std::vector<StepFacts> slow = steps;
    double now_s = slow[fault - 1].time_s;
    for (std::size_t i = fault; i < slow.size(); ++i) {
      slow[i].seconds = std::max({1.0, 10 * usual.median(), 2 * usual.quantile(0.95)});
      slow[i].time_s = now_s += slow[i].seconds;
    }
    expect_in_time(slow, fault, AlertKind::kThroughput, file);

    if (steps[0].rank_seconds.empty()) continue;
    std::vector<StepFacts> straggler = steps;
    for (std::size_t i = fault; i < straggler.size(); ++i) straggler[i].rank_seconds[1] = 3;
    expect_in_time(straggler, fault, AlertKind::kStraggler, file);
  }
}

// As long as a person would need to see it: the mean of 50 steps must have risen by 5%.
TEST(Recordings, WhoseLossRisesRaiseADivergence) {
  for (const fs::path& file : recordings()) {
    std::vector<StepFacts> steps = steps_of(file);
    const std::vector<StepFacts> healthy = steps;
    double rise = 0;
    for (int i = 0; i < 400; ++i) {
      StepFacts facts = healthy[healthy.size() - 30 + static_cast<std::size_t>(i % 30)];
      facts.step = healthy.back().step + 1 + i;
      facts.time_s = healthy.back().time_s + i;
      facts.loss *= 1 + (rise += 0.003);
      steps.push_back(facts);
    }
    int found = 0;
    for (const Alert& alert : replay(steps)) found += alert.kind == AlertKind::kDivergence ? 1 : 0;
    EXPECT_EQ(found, 1) << file;
  }
}

}  // namespace
}  // namespace atl::watch
