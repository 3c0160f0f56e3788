#include "atoll/tune/trial/history.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::tune {

const Trial& History::trial(int number) const {
  ATOLL_CHECK(number >= 0 && static_cast<std::size_t>(number) < trials_.size(), "trial {} of {}",
              number, trials_.size());
  return trials_[static_cast<std::size_t>(number)];
}

void History::apply(const Event& event) {
  if (event.kind == Event::Kind::kOpen) return;
  const auto next = static_cast<int>(trials_.size());
  const bool is_new = event.kind == Event::Kind::kSuggest;
  if (event.trial < 0 || (is_new ? event.trial != next : event.trial >= next)) {
    throw damaged_error("event {} of trial {}, and there are {} trials", name_of(event.kind),
                        event.trial, next);
  }
  if (is_new) {
    trials_.push_back({.number = event.trial,
                       .units = event.units,
                       .settings = event.settings,
                       .note = event.note,
                       .bracket = event.bracket,
                       .member = event.member,
                       .parent = event.parent,
                       .fork_step = event.fork_step,
                       .target = event.step});
    return;
  }
  Trial& trial = trials_[static_cast<std::size_t>(event.trial)];
  if (trial.is_over()) {
    throw damaged_error("event {} of trial {}, which was over", name_of(event.kind), event.trial);
  }
  switch (event.kind) {
    case Event::Kind::kGoOn:
      trial.target = event.step;
      break;
    case Event::Kind::kStart:
      ++trial.starts;
      trial.worker = event.worker;
      break;
    case Event::Kind::kResult:
      if (event.step <= trial.reached()) {
        throw damaged_error("a result of trial {} at step {}, after one at {}", event.trial,
                            event.step, trial.reached());
      }
      trial.worker.clear();
      trial.measured.push_back({event.step, event.values, event.tokens, event.seconds});
      results_.emplace_back(event.trial, event.step);
      tokens_ += event.tokens;
      break;
    case Event::Kind::kEnd:
      trial.end = event.end;
      trial.why = event.why;
      break;
    default:
      break;
  }
}

double cost(const std::vector<Objective>& objectives, std::size_t index, double value) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
  return objectives[index].maximise ? -value : value;
}

std::vector<int> best_trials(const History& history, const std::vector<Objective>& objectives,
                             std::int64_t step) {
  std::int64_t furthest = 0;
  for (const Trial& trial : history.trials()) {
    if (!trial.measured.empty() && !trial.has_failed()) {
      furthest = std::max(furthest, trial.reached());
    }
  }
  furthest = std::min(furthest, step);
  std::vector<std::pair<int, std::vector<double>>> costs;
  for (const Trial& trial : history.trials()) {
    const Measurement* m = trial.at(furthest);
    if (m == nullptr || trial.has_failed()) continue;
    std::vector<double> all;
    for (std::size_t i = 0; i < objectives.size(); ++i) {
      all.push_back(cost(objectives, i, m->values[i]));
    }
    if (std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); })) {
      costs.emplace_back(trial.number, std::move(all));
    }
  }
  std::vector<int> best;
  for (const auto& [number, mine] : costs) {
    const bool is_beaten = std::any_of(costs.begin(), costs.end(), [&](const auto& other) {
      bool better = false;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (other.second[i] > mine[i]) return false;
        better |= other.second[i] < mine[i];
      }
      return better || (other.second == mine && other.first < number);
    });
    if (!is_beaten) best.push_back(number);
  }
  return best;
}

}  // namespace atl::tune
