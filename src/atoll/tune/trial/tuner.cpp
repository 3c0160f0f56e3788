#include "atoll/tune/trial/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/tune/schedule/pb2.h"
#include "atoll/tune/schedule/registry.h"
#include "atoll/tune/schedule/schedulers.h"
#include "atoll/tune/search/draws.h"

namespace atl::tune {

Problem problem_of(const Study& study) {
  const StudySettings& s = study.settings();
  return {.space = study.space(),
          .objectives = study.objectives(),
          .searcher = s.searcher,
          .scheduler = s.scheduler,
          .rules = {.seed = study.seed(),
                    .max_steps = study.max_steps(),
                    .min_steps = s.min_steps,
                    .every = s.every,
                    .eta = s.eta,
                    .population = static_cast<int>(s.population),
                    .interval = s.interval,
                    .quantile = s.quantile},
          .startup = static_cast<int>(s.startup),
          .resample = s.resample,
          .explore = s.explore,
          .trials = s.trials,
          .tokens = s.tokens};
}

std::vector<std::pair<std::string, std::string>> settings_at(const Space& space,
                                                             const Units& units) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const auto& [key, value] : space.values(units)) settings.emplace_back(key, to_toml(value));
  return settings;
}

Tuner::Tuner(Problem problem, std::span<const Event> past, Append append)
    : problem_(std::move(problem)),
      append_(std::move(append)),
      searcher_(make_searcher(problem_.searcher)),
      scheduler_(make_scheduler(problem_.scheduler, problem_.rules)) {
  for (const Event& event : past) history_.apply(event);
  for (const Trial& trial : history_.trials()) num_suggested_ += trial.parent < 0 ? 1 : 0;
}

void Tuner::record(std::vector<Event> events) {
  append_(events);
  for (const Event& event : events) {
    history_.apply(event);
    if (event.kind == Event::Kind::kSuggest && event.parent < 0) ++num_suggested_;
  }
}

std::optional<Job> Tuner::take_due(const std::string& worker) {
  for (const Trial& trial : history_.trials()) {
    if (!trial.is_due() || running_.contains(trial.number)) continue;
    const Job job = {trial.number, trial.target};
    record({{.kind = Event::Kind::kStart, .trial = job.trial, .step = job.step, .worker = worker}});
    running_.insert(job.trial);
    return job;
  }
  return std::nullopt;
}

bool Tuner::is_spent() const {
  return problem_.tokens > 0 && history_.tokens() >= problem_.tokens;
}

bool Tuner::has_room(bool is_spent) const {
  if (is_spent || is_exhausted_) return false;
  if (problem_.trials > 0 && num_suggested_ >= problem_.trials) return false;
  const double most = searcher_->num_trials(problem_.space);
  return most == 0 || num_suggested_ < most;
}

ScheduleView Tuner::schedule_view(bool is_spent) const {
  return {.trials = history_.trials(),
          .has_room = has_room(is_spent),
          .is_waiting = is_waiting(),
          .value = [this](const Trial& trial, std::int64_t step) {
            const Measurement* m = trial.at(step);
            if (m == nullptr) return std::numeric_limits<double>::infinity();
            return cost(problem_.objectives, 0, m->values.front());
          }};
}

std::optional<Job> Tuner::next(bool is_spent, const std::string& worker) {
  if (std::optional<Job> job = take_due(worker)) return job;
  const bool spent = is_spent || this->is_spent();
  if (spent) return std::nullopt;
  // Twice where the space turns out to be exhausted: what is left is to promote.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool had_room = has_room(spent);
    const std::vector<Event> events = events_of(scheduler_->next(schedule_view(spent)));
    if (!events.empty()) {
      record(events);
      return take_due(worker);
    }
    if (had_room == has_room(spent)) break;
  }
  return std::nullopt;
}

std::vector<Event> Tuner::events_of(const std::vector<Move>& moves) {
  std::vector<Event> events;
  auto number = static_cast<int>(history_.trials().size());
  std::vector<Units> together;  // what members train with until they are compared again
  for (const Move& move : moves) {
    if (move.kind == Move::Kind::kGoOn) together.push_back(history_.trial(move.trial).units);
  }
  for (const Move& move : moves) {
    switch (move.kind) {
      case Move::Kind::kNew:
        ATOLL_CHECK_EQ(moves.size(), std::size_t{1});
        if (std::optional<Event> event = suggest(move)) events.push_back(std::move(*event));
        break;
      case Move::Kind::kGoOn:
        events.push_back({.kind = Event::Kind::kGoOn, .trial = move.trial, .step = move.step});
        break;
      case Move::Kind::kStop:
        events.push_back({.kind = Event::Kind::kEnd,
                          .trial = move.trial,
                          .end = End::kStopped,
                          .why = move.why});
        break;
      case Move::Kind::kFork:
        events.push_back(fork(move, number++, together));
        together.push_back(events.back().units);
        break;
    }
  }
  return events;
}

Event Tuner::fork(const Move& move, int number, const std::vector<Units>& together) const {
  const Trial& donor = history_.trial(move.trial);
  const auto draws = static_cast<std::uint64_t>(number);
  const Rules& rules = problem_.rules;
  const Units units =
      problem_.explore == "pb2"
          ? explore_by_bandit(problem_.space, schedule_view(false), rules, problem_.resample,
                              {donor, move.from, draws, together})
          : explore(problem_.space, donor.units, problem_.resample, rules.seed, draws);
  return {.kind = Event::Kind::kSuggest,
          .trial = number,
          .step = move.step,
          .units = units,
          .settings = settings_at(problem_.space, units),
          .member = move.member,
          .parent = move.trial,
          .fork_step = move.from};
}

std::optional<Event> Tuner::suggest(const Move& move) {
  const SearchView view = search_view();
  const auto number = static_cast<std::size_t>(num_suggested_);
  const Suggestion suggestion = number < problem_.starts.size()
                                    ? Suggestion{problem_.starts[number], ""}
                                    : searcher_->suggest(view);
  Units units = problem_.space.canonical(suggestion.units);
  const auto was_tried = [&] {
    return std::any_of(history_.trials().begin(), history_.trials().end(),
                       [&](const Trial& trial) { return trial.units == units; });
  };
  // The same settings give the same bits: a trial twice is no trial. The next that is free of a
  // quasi-random sequence takes its place.
  constexpr std::uint64_t kTries = 2000;
  if (was_tried()) {
    const QuasiRandom others(view.seed + 1, problem_.space.size());
    std::uint64_t index = static_cast<std::uint64_t>(view.number);
    const std::uint64_t last = index + kTries;
    while (was_tried() && ++index < last) units = problem_.space.canonical(others.point(index));
    if (was_tried()) {
      is_exhausted_ = true;
      return std::nullopt;
    }
  }
  return Event{.kind = Event::Kind::kSuggest,
               .trial = static_cast<int>(history_.trials().size()),
               .step = move.step,
               .units = units,
               .settings = settings_at(problem_.space, units),
               .note = suggestion.note,
               .bracket = move.bracket,
               .member = move.member};
}

std::vector<double> Tuner::scalar_costs(const std::vector<const Measurement*>& measured) const {
  const std::size_t count = problem_.objectives.size();
  std::vector<double> result(measured.size());
  std::vector<double> weights(count, 1.0);
  if (count > 1) {
    // ParEGO (Knowles 2006): another weighting of the objectives for each suggestion.
    Draws draws(problem_.rules.seed, DrawFor::kWeights, static_cast<std::uint64_t>(num_suggested_));
    double sum = 0;
    for (double& weight : weights) sum += weight = -std::log(1 - draws.uniform());
    for (double& weight : weights) weight /= sum;
  }
  std::vector<double> low(count, std::numeric_limits<double>::infinity());
  std::vector<double> high(count, -std::numeric_limits<double>::infinity());
  for (const Measurement* m : measured) {
    for (std::size_t i = 0; m != nullptr && i < count; ++i) {
      const double x = cost(problem_.objectives, i, m->values[i]);
      if (!std::isfinite(x)) continue;
      low[i] = std::min(low[i], x);
      high[i] = std::max(high[i], x);
    }
  }
  for (std::size_t k = 0; k < measured.size(); ++k) {
    if (measured[k] == nullptr) {
      result[k] = std::numeric_limits<double>::infinity();
    } else if (count == 1) {
      result[k] = cost(problem_.objectives, 0, measured[k]->values[0]);
    } else {
      double most = 0, sum = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double x = cost(problem_.objectives, i, measured[k]->values[i]);
        const double scaled = high[i] > low[i] ? (x - low[i]) / (high[i] - low[i]) : 0 * x;
        most = std::max(most, weights[i] * scaled);
        sum += weights[i] * scaled;
      }
      result[k] = std::isfinite(sum) ? most + 0.05 * sum : std::numeric_limits<double>::infinity();
    }
  }
  return result;
}

SearchView Tuner::search_view() const {
  SearchView view = {.space = problem_.space,
                     .seed = problem_.rules.seed,
                     .number = num_suggested_,
                     .startup = problem_.startup};
  // The longest rung that enough trials have come to (Falkner et al. 2018, BOHB): values of
  // different rungs cannot be compared. Without rungs a trial counts by the last that it showed.
  const bool has_rungs = problem_.scheduler == "asha" || problem_.scheduler == "hyperband";
  std::int64_t level = problem_.rules.max_steps;
  if (has_rungs) {
    const std::vector<std::int64_t> rungs =
        rung_steps(problem_.rules.min_steps, problem_.rules.max_steps, problem_.rules.eta);
    const auto enough = static_cast<std::ptrdiff_t>(std::max<std::size_t>(
        static_cast<std::size_t>(problem_.startup) / 2, problem_.space.size() + 2));
    level = rungs.front();
    for (const std::int64_t step : rungs) {
      const auto here =
          std::count_if(history_.trials().begin(), history_.trials().end(),
                        [&](const Trial& trial) { return trial.at(step) != nullptr; });
      if (here >= enough) level = step;
    }
  }
  std::vector<const Measurement*> measured;
  std::set<int> seen;
  const auto add = [&](const Trial& trial, const Measurement* m) {
    if (!seen.insert(trial.number).second) return;
    measured.push_back(trial.end == End::kDiverged ? nullptr : m);
    view.done.push_back({trial.number, trial.units, 0, trial.note});
  };
  for (const auto& [number, step] : history_.results()) {
    const Trial& trial = history_.trial(number);
    const bool counts = has_rungs ? step == level : trial.is_over() && step == trial.reached();
    if (counts) add(trial, trial.at(step));
  }
  for (const Trial& trial : history_.trials()) {
    if (trial.has_failed()) {
      add(trial, nullptr);
    } else if ((trial.is_due() || has_rungs) && !seen.contains(trial.number)) {
      // A trial that was left on a lower rung also stands where nobody need look again.
      view.running.push_back({trial.number, trial.units, 0, trial.note});
    }
  }
  const std::vector<double> costs = scalar_costs(measured);
  for (std::size_t i = 0; i < costs.size(); ++i) view.done[i].value = costs[i];
  return view;
}

void Tuner::result(int number, Measurement measurement) {
  const Trial& trial = history_.trial(number);
  ATOLL_CHECK_EQ(measurement.values.size(), problem_.objectives.size());
  std::vector<Event> events = {{.kind = Event::Kind::kResult,
                                .trial = number,
                                .step = measurement.step,
                                .values = measurement.values,
                                .tokens = measurement.tokens,
                                .seconds = measurement.seconds}};
  const bool is_finite = std::all_of(measurement.values.begin(), measurement.values.end(),
                                     [](double x) { return std::isfinite(x); });
  if (!is_finite || measurement.step >= problem_.rules.max_steps) {
    events.push_back({.kind = Event::Kind::kEnd,
                      .trial = number,
                      .end = is_finite ? End::kFinished : End::kDiverged,
                      .why = is_finite ? "" : "a value that is not finite"});
  } else {
    // Judged as if it had been recorded, and recorded together with what becomes of it.
    History after = history_;
    after.apply(events.front());
    ScheduleView view = schedule_view(false);
    const ScheduleView there = {.trials = after.trials(),
                                .has_room = view.has_room,
                                .is_waiting = view.is_waiting,
                                .value = view.value};
    for (Event& event : events_of(scheduler_->judge(there, after.trial(number)))) {
      events.push_back(std::move(event));
    }
  }
  ATOLL_CHECK(!trial.is_over(), "a result of trial {}, which is over", number);
  record(std::move(events));
  running_.erase(number);
}

void Tuner::failed(int number, End how, const std::string& why) {
  record({{.kind = Event::Kind::kEnd, .trial = number, .end = how, .why = why}});
  running_.erase(number);
}

}  // namespace atl::tune
