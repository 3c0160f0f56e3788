#include "atoll/train/island/rounds.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/log.h"
#include "atoll/base/quantity.h"
#include "atoll/island/policy/policy.h"
#include "atoll/island/protocol/trace.h"
#include "atoll/train/config/outer_options.h"

namespace atl::train {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using island::BatchRange;
using island::OuterChange;

namespace {

// While the lead waits for other islands, the other ranks wait for the lead no longer than this.
constexpr std::chrono::seconds kTellEvery{1};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::optional<fs::path> unless_empty(const std::string& path) {
  return path.empty() ? std::nullopt : std::optional<fs::path>(path);
}

}  // namespace

namespace {

IslandParams::Shares shares_of(const island::OuterOptions& options, const Ranks& ranks,
                               OuterHolders holders) {
  // With gossip whole states are exchanged, which one rank has.
  const bool in_parts = holders == OuterHolders::kAllRanks && options.algorithm != "gossip";
  return {
      .num_ranks = in_parts ? ranks.size() : 1,
      .state_vectors = 1 + island::make_outer_optimizer(options.optimizer)->num_state_vectors()};
}

}  // namespace

IslandRounds::IslandRounds(const TrainConfig& config, const island::RunIdentity& identity,
                           TrainState& state, Ranks& ranks, OuterHolders holders)
    : config_(config),
      identity_(identity),
      state_(&state),
      ranks_(&ranks),
      options_(outer_options(config.outer)),
      params_(fragments_of(state.whole_layout(), options_.fragments), state, ranks,
              shares_of(options_, ranks, holders)),
      clock_(std::max<std::int64_t>(1, config.outer.islands)) {
  const std::string why = island::policy_fault(policy_plan(config.outer, largest_fragment()),
                                               static_cast<int>(config.outer.islands));
  if (!why.empty()) throw user_error("outer.policy {}: {}", config.outer.policy, why);
  if (params_.has_part()) part_.emplace(options_, params_);
  if (!ranks.is_lead()) return;
  tracker_.emplace(part_->algorithm().timing());
  pace_ = IslandPace(part_->algorithm().interval());
}

// The clients before the way between them.
IslandRounds::~IslandRounds() {
  client_.reset();
  if (link_) link_->stop();
  rank_client_.reset();
}

// ---- beginning ----

void IslandRounds::begin(const fs::path& checkpoint) {
  if (!part_) {
    follow();
    return;
  }
  island::RoundTracker::Work work;
  if (!checkpoint.empty() && is_in(checkpoint)) {
    work = load(checkpoint);
  } else {
    for (int f = 0; f < part_->num_fragments(); ++f) {
      if (shares_state()) {
        params_.gather(f);
      } else {
        read(f);  // and stays so: the anchor is what the ranks have
      }
      part_->start(f, [this](const island::StateHash& own) { return sum_of_ranks(own); });
    }
  }
  make_exchange();
  if (ranks_->is_lead()) make_client(std::move(work));
}

void IslandRounds::make_client(island::RoundTracker::Work work) {
  const OuterSettings& outer = config_.outer;
  const std::int64_t islands = std::max<std::int64_t>(1, outer.islands);
  const island::ClientOptions options = {.name = config_.island.name,
                                         .coordinator = config_.island.coordinator,
                                         .address = address_,
                                         .identity = unless_empty(config_.island.identity),
                                         .secret = unless_empty(config_.island.secret),
                                         .run = identity_,
                                         .plan = {.num_fragments = part_->num_fragments(),
                                                  .inner_steps = part_->algorithm().interval(),
                                                  .total_batches = config_.train.steps * islands,
                                                  .min_islands = static_cast<int>(islands),
                                                  .quorum = static_cast<int>(outer.quorum),
                                                  .grace_seconds = outer.grace_s,
                                                  .is_private = outer.data == "private",
                                                  .policy = policy_plan(outer, largest_fragment()),
                                                  .is_async = outer.algorithm == "async",
                                                  .is_gossip = outer.algorithm == "gossip"},
                                         .has_final_model = has_final_model_};
  const std::vector<BatchRange> holds = work.holds();
  tracker_->begin(part_->outer().outer_step(), std::move(work));
  client_ = std::make_unique<island::Client>(options, part_->outer(), *exchange_, link_.get(),
                                             holds, !holds.empty());
  if (!shares_state()) tell({.command = Command::kEnd});
}

double IslandRounds::largest_fragment() const {
  std::int64_t largest = 0;
  for (int f = 0; f < params_.num_fragments(); ++f) {
    largest = std::max(largest, params_.whole_elements(f));
  }
  return static_cast<double>(largest);
}

// The parameters of a fragment become its anchor, and nothing is under way.
void IslandRounds::reset(int f) {
  const auto now = part_->outer().current(f);
  tell_parts({.command = Command::kReset, .fragment = f, .hash = now->hash});
  part_->reset(f, now);
}

// ---- between steps ----

IslandRounds::Next IslandRounds::next(const Asks& asks) {
  if (!ranks_->is_lead()) return follow();
  Next next = {.what = prepare(asks)};
  write_parameters();
  switch (next.what) {
    case Next::What::kStep:
      next.batch = config_.outer.data == "private" ? steps_taken_ : tracker_->next_batch();
      next.schedule_step = clock_.schedule_step();
      next.steps_left = clock_.steps_left(config_.train.steps);
      tell({.command = Command::kTrain,
            .batch = next.batch,
            .schedule_step = next.schedule_step,
            .steps_left = next.steps_left});
      break;
    case Next::What::kRegroup:
      tell({.command = Command::kRegroup});
      break;
    case Next::What::kEnd:
      tell({.command = Command::kEnd, .is_over = is_over_});
  }
  return next;
}

// What is due before the next step. What it begins and cannot end is made again by the next call.
IslandRounds::Next::What IslandRounds::prepare(const Asks& asks) {
  using Do = island::RoundTracker::Do;
  const Clock::time_point start = Clock::now();
  auto what = Next::What::kEnd;
  for (;;) {
    absorb_news();
    if (asks.stop()) {
      depart();
      break;
    }
    if (client_->is_finished()) {  // whatever it was about to do
      finish();
      break;
    }
    const island::RoundTracker::Decision due = tracker_->next();
    if (due.what == Do::kTrain) {
      what = Next::What::kStep;
      break;
    }
    if (due.what == Do::kWait && asks.wants_change && asks.wants_change()) {
      what = Next::What::kRegroup;
      break;
    }
    if (due.what == Do::kWait) {
      wait();
    } else if (due.what == Do::kApply) {
      apply();
    } else if (due.what == Do::kTakeBack) {
      take_back(due.fragment);
    } else if (due.what == Do::kHandIn) {
      hand_in();
    } else {
      begin_round();
    }
  }
  exposed_seconds_ += seconds_since(start);
  pace_.waited(seconds_since(start));
  return what;
}

// All that the client has to tell. One change is absorbed before the next is heard.
void IslandRounds::absorb_news() {
  for (;;) {
    if (tracker_->has_change()) {
      absorb_change();
      continue;
    }
    const std::unique_ptr<island::ClientNews> news = client_->next_news();
    if (!news) return;
    if (const auto* round = std::get_if<island::StartRound>(news.get())) {
      tracker_->granted(round->lease, round->drops_hand_in);
    } else if (const auto* use = std::get_if<island::UseSchedule>(news.get())) {
      tracker_->overlaps(use->schedule.overlap);
    } else {
      hear(std::move(std::get<OuterChange>(*news)));
    }
  }
}

void IslandRounds::wait() {
  write_parameters();
  client_->wait();
  if (Clock::now() - told_at_ > kTellEvery) tell({.command = Command::kWait});
}

// Before the last checkpoint, so that what was committed until then is in it.
void IslandRounds::depart() {
  client_->leave("it was stopped");
  absorb_news();
  if (tracker_->has_committed()) apply();
}

void IslandRounds::begin_round() {
  const island::Lease lease = tracker_->next_lease();
  tracker_->begun();
  if (lease.ranges.empty()) return;
  std::int64_t steps = 0;
  for (const BatchRange& range : lease.ranges) steps += range.size();
  clock_.begin_round(lease.round_begin, lease.round_batches, steps);
}

// All islands end with the same model, whatever they had of their own.
void IslandRounds::finish() {
  for (int f = 0; f < part_->num_fragments(); ++f) {
    reset(f);
    write_parameters();  // so that there is never more than one fragment here
  }
  tracker_->end();
  committed_.reset();
  is_over_ = true;
}

void IslandRounds::hear(OuterChange change) {
  if (change.kind == OuterChange::Kind::kReplaced) {
    tracker_->replaced(change.outer_step, change.drops_work);
    change_ = std::move(change);
    return;
  }
  report(change);
  tracker_->committed(change.outer_step, change.fragment, change.contributed);
  (change.contributed ? committed_ : change_) = std::move(change);
}

// Only reading and writing fail because a rank is lost. What was done before that is found done,
// and the rest is done by the next call.
void IslandRounds::absorb_change() {
  const island::RoundTracker::Decision due = tracker_->next();
  if (due.what == island::RoundTracker::Do::kApply) return apply();
  if (due.what == island::RoundTracker::Do::kAdopt) {
    adopt(due.drops_work);
    tracker_->adopted();
  } else {
    rebase(due.fragment, change_->state, due.takes_back);
    tracker_->rebased();
  }
  change_.reset();
}

// The outer state was fetched from others. Fragments come one by one, so that there is never more
// than one here.
void IslandRounds::adopt(bool drops_work) {
  for (int f = 0; f < part_->num_fragments(); ++f) {
    const auto now = part_->outer().current(f);
    if (drops_work) {
      reset(f);
    } else if (now != part_->base(f)) {
      rebase(f, now, tracker_->fragment_in_flight() == f);
    }
    write_parameters();
  }
}

// It was committed, with what this island handed in.
void IslandRounds::apply() {
  const int f = committed_->fragment;
  island::trace("outer step {}: is committed", committed_->outer_step + 1);
  const island::OuterParamUse& use = part_->algorithm().param_use();
  if (use.apply_changes && use.apply_reads) read(f);
  tell_parts({.command = Command::kApply, .fragment = f, .hash = committed_->state->hash});
  part_->apply(f, committed_->state);
  tracker_->applied();
  island::trace("outer step {}: is taken over", committed_->outer_step + 1);
  committed_.reset();
}

// Nobody will commit what was handed in: it is in the next one again.
void IslandRounds::take_back(int f) {
  rebase(f, part_->base(f), /*takes_back=*/true);
  tracker_->taken_back();
}

// The anchor of a fragment has moved without what this island has trained.
void IslandRounds::rebase(int f, const std::shared_ptr<const island::FragmentState>& now,
                          bool takes_back) {
  read(f);
  tell_parts(
      {.command = Command::kRebase, .fragment = f, .takes_back = takes_back, .hash = now->hash});
  part_->rebase(f, now, takes_back);
}

void IslandRounds::hand_in() {
  const island::RoundTracker::Decision due = tracker_->next();
  const std::int64_t outer_step = due.outer_step;
  const int f = due.fragment;
  island::trace("outer step {}: the round is trained", outer_step + 1);
  read(f);
  const double share = 1.0 / client_->num_active();
  tell_parts(
      {.command = Command::kHandIn, .fragment = f, .outer_step = outer_step, .share = share});
  const std::shared_ptr<const std::vector<float>> delta = part_->hand_in(f, share);
  const island::RoundTracker::Work& work = tracker_->work();
  client_->hand_in({.outer_step = outer_step,
                    .fragment = f,
                    .delta = delta,
                    .base_hash = part_->base(f)->hash,
                    .tokens = work.tokens,
                    .consumed = work.trained,
                    .loss = work.tokens > 0 ? work.loss_sum / static_cast<double>(work.tokens) : 0,
                    .step_seconds = pace_.steps_per_second() > 0 ? 1 / pace_.steps_per_second() : 0,
                    .learning_rate = lr_});
  tracker_->handed_in();
  island::trace("outer step {}: handed in", outer_step + 1);
}

void IslandRounds::stepped(const StepResult& result, double seconds, double lr) {
  if (part_) params_.forget();
  if (!ranks_->is_lead()) return;
  // A round in which nothing had a loss is handed in like another, or its batches would be given
  // out again for ever; one token keeps its weight from being 0.
  tracker_->trained(1, std::max<std::int64_t>(result.targets, 1),
                    result.taken() ? result.loss * static_cast<double>(result.targets) : 0);
  ++steps_taken_;
  clock_.stepped();
  trained_seconds_ += seconds;
  lr_ = lr;
  pace_.stepped(seconds, seconds_since(began_at_));
  client_->tell_speed(steps_taken_, pace_.steps_per_second());
}

void IslandRounds::leave(const std::string& why) {
  if (client_ && !is_over_) client_->leave(why);
}

void IslandRounds::tell_saved() {
  if (client_ && is_over_) client_->tell_saved();
}

// The other ranks stay as well: each has a part of the state that is fetched.
void IslandRounds::stay(const std::function<bool()>& stop) {
  if (!is_over_) return;
  if (!ranks_->is_lead()) {
    follow();
    return;
  }
  constexpr std::chrono::seconds kSilent{2};
  const Clock::time_point start = Clock::now();
  bool is_told = false;
  while (!client_->may_go() && !stop()) {
    client_->wait();
    if (Clock::now() - told_at_ > kTellEvery) tell({.command = Command::kWait});
    if (is_told || Clock::now() - start < kSilent) continue;
    is_told = true;
    log::info("the final model is saved; this island stays until all others have saved theirs");
  }
  tell({.command = Command::kEnd, .is_over = true});
}

// ---- what is kept and told ----

void IslandRounds::report(const OuterChange& change) {
  Report report;
  const double all = trained_seconds_ + exposed_seconds_;
  const double utilisation = all > 0 ? trained_seconds_ / all : 1;
  const int others = std::max(1, change.num_participants);
  // What data-parallel ranks would have sent meanwhile: 2 (M - 1) / M f32 gradients a step.
  const double data_parallel =
      2.0 * 4.0 * static_cast<double>(state_->whole_layout().flat().shape.num_elements()) *
      (others - 1) / others * static_cast<double>(steps_taken_ - reported_steps_);
  const double saved =
      change.sent_bytes > 0 ? data_parallel / static_cast<double>(change.sent_bytes) : 0;
  metrics::Record& record = report.record;
  record.add("outer_step", change.outer_step + 1);
  record.add("outer_members", std::int64_t{change.num_participants});
  record.add("outer_contributed", std::int64_t{change.contributed});
  record.add("outer_tokens", change.tokens);
  record.add("outer_sent_bytes", static_cast<std::int64_t>(change.sent_bytes));
  record.add("outer_received_bytes", static_cast<std::int64_t>(change.received_bytes));
  record.add("outer_exchange_s", change.exchange_seconds);
  record.add("outer_exposed_s", exposed_seconds_);
  record.add("outer_utilisation", utilisation);
  record.add("outer_bytes_saved", saved);
  if (config_.outer.algorithm == "gossip") record.add("outer_spread", change.spread);
  report.line = fmt::format(
      "outer step {}: {}{}, {:.2f} MB sent, {:.2f} s exchange, {:.2f} s waited, "
      "{:.1f}% training{}",
      change.outer_step + 1, counted(change.num_participants, "island"),
      change.contributed ? "" : " without this one", static_cast<double>(change.sent_bytes) / 1e6,
      change.exchange_seconds, exposed_seconds_, 100 * utilisation,
      saved > 0 ? fmt::format(", {:.0f}x fewer bytes than data parallel", saved) : "");
  exposed_seconds_ = 0;
  trained_seconds_ = 0;
  reported_steps_ = steps_taken_;
  reports_.push_back(std::move(report));
}

std::vector<IslandRounds::Report> IslandRounds::take_reports() {
  return std::exchange(reports_, {});
}

}  // namespace atl::train
