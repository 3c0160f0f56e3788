#include "atoll/island/simulation/simulator.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numbers>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/simulation/trace.h"

namespace atl::island {

namespace {

constexpr Seconds kTick = 0.25;

double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Simulator::Simulator(const SimulationOptions& options, std::uint64_t seed)
    : options_(options), seed_(seed), rng_(seed, RngPurpose::kSynthetic), audit_(options.plan) {
  used_ = options.plan.policy.base;
  start_coordinator();
  for (int i = 0; i < options.num_islands; ++i) add_island();
  for (const SimulatedFault& fault : options.faults) add(fault);
}

Simulator::~Simulator() = default;

void Simulator::schedule(Seconds after, std::function<void()> what) {
  events_.at(now() + std::max(0.0, after), std::move(what));
}

double Simulator::uniform() {
  return rng_.uniform(num_drawn_++);
}

void Simulator::run(Seconds until) {
  while (!events_.empty() && events_.next_time() <= until) {
    events_.run_next();
    if (options_.progress && ++num_events_ % 1000 == 0) {
      options_.progress({.seconds = now(),
                         .commits = audit_.num_commits(),
                         .batches = audit_.num_batches(),
                         .events = num_events_});
    }
    if (audit_.violations().size() > 0) return;
    if (target_at_ > 0) return;
    const bool is_over = is_finished_ || !halted_.empty();
    const bool is_quiet = std::all_of(islands_.begin(), islands_.end(),
                                      [](const auto& island) { return island->has_ended(); });
    if (is_over && is_quiet) return;
    if (options_.max_outer_steps > 0 && audit_.outer_step() >= options_.max_outer_steps) return;
  }
}

// What the commit's batches gain. The four costs are those of bench/results/islands-quality, where
// a policy has them from too; stale_cost makes them wrong for it.
void Simulator::note_progress(const LogCommit& commit) {
  double batches = 0;
  double most = 1;
  for (const LogContribution& contribution : reduce_->contributions) {
    double own = 0;
    for (const BatchRange& range : contribution.consumed) own += static_cast<double>(range.size());
    batches += own;
    most = std::max(most, own);
  }
  const double length = most * options_.plan.num_fragments;
  const std::string& codec = used_.codec;
  const double coarse = codec == "e3m0" ? .035 : codec == "int8" ? .005 : 0;
  const double cost = (1 + options_.stale_cost * std::pow(length, 0.25)) * (1 + coarse) *
                      (1 + .004 * static_cast<double>(used_.overlap));
  progress_ += batches / cost;
  if (target_at_ == 0 && options_.target_progress > 0 && progress_ >= options_.target_progress) {
    target_at_ = now();
  }
  if (used_.predicted_seconds > 0) {
    prediction_errors_.push_back(
        std::abs(used_.predicted_seconds / std::max(1e-9, commit.exchange_seconds) - 1));
  }
  num_changes_ += commit.why.empty() ? 0 : 1;
  used_ = commit.next.value_or(options_.plan.policy.base);
}

double Simulator::loss() const {
  const auto scale =
      static_cast<double>(std::max<std::int64_t>(1, options_.plan.total_batches)) / 8;
  return 2 + 4 / std::sqrt(1 + progress_ / scale);
}

// A cosine to a twentieth.
double Simulator::learning_rate() const {
  const double part = static_cast<double>(audit_.num_batches()) /
                      static_cast<double>(std::max<std::int64_t>(1, options_.plan.total_batches));
  return 1e-3 * (0.05 + 0.95 * (1 + std::cos(std::numbers::pi * std::min(1.0, part))) / 2);
}

SimulationReport Simulator::report() {
  const bool is_done =
      is_finished_ || target_at_ > 0 ||
      (options_.max_outer_steps > 0 && audit_.outer_step() >= options_.max_outer_steps);
  if (is_finished_) audit_.finish(true, now());
  for (const auto& island : islands_) {
    if (!options_.coordinator_ends || island->has_ended()) continue;
    audit_.violation(fmt::format("{} has not heard of the end", island->name()), now());
  }
  if (!is_done && halted_.empty() && audit_.violations().empty()) {
    audit_.violation(
        fmt::format("not finished: {} outer steps, {} of {} batches", audit_.outer_step(),
                    audit_.num_batches(), options_.plan.total_batches),
        now());
  }
  // Saving the final model is no part of the run's time.
  const Seconds seconds = is_finished_ && ended_at_ > 0 ? ended_at_ : now();
  SimulationReport report = {.seed = seed_, .is_finished = is_done, .seconds = seconds};
  Seconds trained = 0;
  for (const auto& island : islands_) {
    trained += island->trained_seconds();
    report.evictions += island->was_turned_out() ? 1 : 0;
  }
  const double capacity = seconds * static_cast<double>(islands_.size());
  double work = 0;
  for (int i = 0; i < options_.num_islands; ++i) {
    const auto index = static_cast<std::size_t>(i);
    work += index < options_.speeds.size() ? options_.speeds[index] : 1;
  }
  if (capacity > 0) {
    report.utilisation = std::min(1.0, trained / capacity);
    report.goodput = std::min(
        1.0, static_cast<double>(audit_.num_batches()) * options_.step_seconds / (seconds * work));
  }
  report.bytes = bytes_;
  report.commits = audit_.num_commits();
  report.aborts = audit_.num_attempts() - audit_.num_commits();
  report.voids = audit_.num_voids();
  report.batches = audit_.num_batches();
  report.crashes = num_crashes_;
  report.messages = num_messages_;
  report.coordinator_cpu = cpu_;
  report.longest_pause = audit_.longest_pause();
  report.seconds_to_target = target_at_;
  report.progress = progress_;
  report.schedule_changes = num_changes_;
  report.schedule = used_;
  report.prediction_errors = prediction_errors_;
  report.halted = halted_;
  report.violations = audit_.violations();
  return report;
}

// ---- the coordinator ----

void Simulator::start_coordinator() {
  CoordinatorOptions options;
  options.identity.run = "simulated";
  options.plan = options_.plan;
  options.out_after = options_.out_after;
  options.void_after = options_.void_after;
  ++life_;
  const LogStarted started = {.fence = ++fence_};
  log_.push_back({.unix_seconds = now(), .body = started});
  audit_.appended(started, now());
  try {
    coordinator_.emplace(options, fence_, log_);
    trace([&] { return fmt::format("{:9.4f} coordinator starts", now()); });
  } catch (const Error& error) {
    return audit_.violation(fmt::format("the log cannot be read again: {}", error.what()), now());
  }
  tick(life_);
}

void Simulator::kill_coordinator(Seconds for_how_long) {
  if (!coordinator_) return;
  trace([&] { return fmt::format("{:9.4f} coordinator is killed", now()); });
  coordinator_.reset();
  ++life_;
  waiting_.clear();
  dies_midway_ = false;
  for (auto& [id, link] : links_) {
    if (link.is_open_here) close_at_coordinator(id);
  }
  schedule(for_how_long, [this] { start_coordinator(); });
}

void Simulator::tick(std::uint64_t life) {
  if (life != life_) return;
  handle({now(), ClockTicked{}});
  if (options_.coordinator_ends) end_coordinator();
  schedule(kTick, [this, life] { tick(life); });
}

// Where all have heard of the end and are gone.
void Simulator::end_coordinator() {
  if (!coordinator_ || coordinator_stops_ > 0 || !coordinator_->is_over()) return;
  const bool has_connections = std::any_of(
      links_.begin(), links_.end(), [](const auto& link) { return link.second.is_open_here; });
  if (has_connections) return;
  trace([&] { return fmt::format("{:9.4f} coordinator ends", now()); });
  coordinator_.reset();
  ++life_;
}

void Simulator::handle(const CoordinatorEvent& event) {
  if (!coordinator_) return;
  if (coordinator_stops_ > 0) {
    waiting_.push_back(event);
    return;
  }
  std::vector<CoordinatorAction> actions;
  const double before = options_.measures_cpu ? cpu_seconds() : 0;
  try {
    actions = coordinator_->handle({now(), event.what});
  } catch (const Error& error) {
    return audit_.violation(fmt::format("the coordinator: {}", error.what()), now());
  }
  if (options_.measures_cpu) cpu_ += cpu_seconds() - before;
  std::size_t count = actions.size();
  const bool dies = dies_midway_ && count > 0;
  if (dies) count = static_cast<std::size_t>(uniform() * static_cast<double>(count + 1));
  const std::uint64_t life = life_;
  for (std::size_t i = 0; i < std::min(count, actions.size()) && life == life_; ++i) {
    perform(actions[i]);
  }
  if (dies) kill_coordinator(down_for_);
}

// Outer steps are void: nobody who is in touch with the coordinator may have the newest state.
void Simulator::expect_lost() {
  for (const Island& at : coordinator_->members().all()) {
    const SimulatedIsland* island = island_of(at.id);
    const bool is_there = island != nullptr && island->is_up() && !island->is_stopped() &&
                          at.connection != kNoConnection && !at.detector->is_silent(now());
    if (!is_there) continue;
    const Member& member = island->member();
    const bool has_it =
        member.outer_step() == audit_.outer_step() && member.hashes() == audit_.hashes();
    const bool could =
        member.outer_step() + 1 == audit_.outer_step() && member.next_hashes() == audit_.hashes();
    if (has_it || could) {
      audit_.violation(fmt::format("outer step {} is void, and {} has it", audit_.outer_step() - 1,
                                   island->name()),
                       now());
    }
  }
}

void Simulator::perform(const CoordinatorAction& action) {
  if (const auto* send = std::get_if<SendToIslands>(&action)) {
    const auto message = std::make_shared<const MessageToIsland>(send->message);
    if (const auto* finish = std::get_if<Finish>(&message->body)) {
      if (!coordinator_->halted().empty()) halted_ = finish->why;
    }
    for (const ConnectionId id : send->to) {
      const auto link = links_.find(id);
      if (link == links_.end()) continue;
      SimulatedIsland* island = islands_[static_cast<std::size_t>(link->second.island)].get();
      if (const auto* welcome = std::get_if<Welcome>(&message->body)) {
        named(welcome->island, link->second.island);
      }
      ++num_messages_;
      transmit(id, kToIsland, [this, island, message] {
        trace([&] {
          return fmt::format("{:9.4f} to {}: {}", now(), island->name(), describe(*message));
        });
        island->receive({0, CoordinatorSaid{*message}});
      });
    }
  } else if (const auto* append = std::get_if<AppendToLog>(&action)) {
    log_.push_back({.unix_seconds = now(), .body = append->body});
    trace([&] { return fmt::format("{:9.4f} log: {}", now(), describe(append->body)); });
    if (std::holds_alternative<LogVoid>(append->body)) expect_lost();
    audit_.appended(append->body, now());
    if (const auto* reduce = std::get_if<LogReduce>(&append->body)) reduce_ = *reduce;
    if (const auto* commit = std::get_if<LogCommit>(&append->body)) note_progress(*commit);
    if (std::holds_alternative<LogFinished>(append->body)) is_finished_ = true;
  } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
    close_at_coordinator(close->connection);
  }
}

}  // namespace atl::island
