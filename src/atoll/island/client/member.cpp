#include "atoll/island/client/member.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/policy/policy.h"

namespace atl::island {

namespace {

constexpr Seconds kFirstRetry = 0.2;
constexpr Seconds kLongestRetry = 1;
constexpr Seconds kFirstFetchAgain = 0.05;
constexpr Seconds kLongestFetchAgain = 1;
// An island with the final model gives up so soon: others may still need it, but not for long.
constexpr Seconds kEndedFor = 10;

auto order_of(const Stamp& stamp) {
  return std::tuple(stamp.fence, stamp.view, stamp.outer_step, stamp.attempt);
}

RangeSet set_of(const std::vector<BatchRange>& ranges) {
  return RangeSet::of(ranges).value_or(RangeSet());
}

}  // namespace

Member::Member(const MemberOptions& options, const MemberStart& start)
    : options_(options),
      outer_step_(start.outer_step),
      hashes_(start.hashes),
      schedule_(options.plan.policy.base),
      holds_(set_of(start.holds)),
      in_round_(start.in_round) {}

std::vector<MemberAction> Member::handle(const MemberEvent& event) {
  now_ = std::max(now_, event.now);
  if (has_halted_) return {};
  if (has_ended_) {
    std::visit([this](const auto& what) { stay(what); }, event.what);
  } else {
    std::visit([this](const auto& what) { on(what); }, event.what);
  }
  return std::exchange(actions_, {});
}

int Member::fragment_of(std::int64_t outer_step) const {
  return static_cast<int>(outer_step % options_.plan.num_fragments);
}

void Member::send(FromIsland body, std::int64_t outer_step) {
  if (!is_connected_) return;
  const Stamp stamp = {.fence = newest_.fence,
                       .view = newest_.view,
                       .outer_step = std::max<std::int64_t>(0, outer_step),
                       .attempt = newest_.attempt,
                       .sender = id_,
                       .sequence = ++sequence_};
  actions_.push_back(SendToCoordinator{{stamp, std::move(body)}});
}

// ---- the connection ----

// The coordinator must be able to rely on the state that it is told of, so nothing that is fetched
// may take its place.
void Member::on(const CoordinatorReached&) {
  is_connected_ = true;
  is_welcome_ = false;
  stop_fetch();
  joins_when_stopped_ = may_change();
  if (!joins_when_stopped_) join();
}

void Member::join() {
  joins_when_stopped_ = false;
  send(Join{.name = options_.name,
            .identity = options_.identity,
            .plan = options_.plan,
            .address = options_.address,
            .outer_step = outer_step_,
            .hashes = hashes_,
            .holds = holds_.ranges(),
            .relay_token = options_.relay_token,
            .peer_token = options_.peer_token,
            .prepared = prepared()});
}

// Training goes on; only actions that need other islands wait.
void Member::on(const CoordinatorLost& event) {
  if (is_leaving_) return halt("it has left", true);
  if (is_connected_ && is_welcome_) {
    actions_.push_back(Warn{"lost the coordinator, which may come back: " + event.why});
  }
  is_connected_ = is_welcome_ = joins_when_stopped_ = false;
  finish_.reset();  // said again on the next connection
  to_put_.clear();
  bytes_from_.clear();
  if (!alone_since_) alone_since_ = now_;
  if (options_.has_final_state && id_ == kNobody && now_ - *alone_since_ > kEndedFor) {
    actions_.push_back(Warn{
        fmt::format("no coordinator for {:.0f} s: {}. The run has ended, and this island has the "
                    "final model",
                    now_ - *alone_since_, event.why)});
    return halt("the run has ended", true);
  }
  if (now_ - *alone_since_ > options_.give_up_after) {
    return halt(fmt::format("no coordinator for {:.0f} s: {}. If the run has ended meanwhile, the "
                            "newest checkpoint of any other island has the final model, and this "
                            "island's is that of outer step {}",
                            now_ - *alone_since_, event.why, outer_step_),
                false);
  }
  connect_again();
}

void Member::connect_again() {
  const Seconds wait = std::min(kLongestRetry, kFirstRetry * (1 << std::min(num_failures_, 8)));
  ++num_failures_;
  actions_.push_back(Connect{wait});
}

void Member::on(const MemberTicked& event) {
  send_heartbeat(event);
  if (is_leaving_ && now_ >= leave_by_) return halt("it has left", true);
  if (fetch_again_ && now_ >= *fetch_again_) {
    fetch_again_.reset();
    if (target_ && is_welcome_) ask("the state could not be fetched");
  }
}

void Member::send_heartbeat(const MemberTicked& event) {
  bytes_from_.insert(event.heard.begin(), event.heard.end());
  if (is_connected_ && is_welcome_ && (!next_heartbeat_ || now_ >= *next_heartbeat_)) {
    next_heartbeat_ = now_ + options_.heartbeat_every;
    send(Heartbeat{.inner_steps = progress_.inner_steps,
                   .batches_per_second = progress_.batches_per_second,
                   .sent = now_,
                   .heard = {bytes_from_.begin(), bytes_from_.end()}});
    bytes_from_.clear();
  }
}

void Member::on(const Progress& event) {
  progress_ = event;
}

void Member::on(const CoordinatorSaid& event) {
  if (!is_connected_) return;
  const Stamp& stamp = event.message.stamp;
  const bool is_stale = !note(stamp);
  if (is_stale && !is_welcome_) return hear_of_older_ledger(event.message);
  if (is_stale) return;
  std::visit([&](const auto& what) { receive(stamp, what); }, event.message.body);
}

// Whether a message is newer than all before it: others are dropped.
bool Member::note(const Stamp& stamp) {
  const bool is_new_fence = stamp.fence > newest_.fence;
  if (order_of(stamp) < order_of(newest_)) return false;
  if (!is_new_fence && stamp.sequence <= heard_) return false;
  newest_ = stamp;
  heard_ = stamp.sequence;
  return true;
}

// A connection keeps its order and a coordinator continues from its ledger, so the answer to Join
// is newer than every message before it. An older answer comes from a coordinator with an older
// ledger, whose messages this island would drop for ever.
void Member::hear_of_older_ledger(const MessageToIsland& message) {
  const auto* refused = std::get_if<Refused>(&message.body);
  if (refused != nullptr) return receive(message.stamp, *refused);
  halt(
      fmt::format("the coordinator goes on from an older ledger: it is at start {} and outer step "
                  "{}, and this island has heard of start {} and outer step {}. Give the "
                  "coordinator the ledger that it had before; where that is lost, start the "
                  "islands again",
                  message.stamp.fence, message.stamp.outer_step, newest_.fence, newest_.outer_step),
      false, /*is_mistake=*/true);
}

void Member::receive(const Stamp&, const Refused& refused) {
  if (refused.is_final) {
    return halt("the coordinator refused this island: " + refused.why, false, /*is_mistake=*/true);
  }
  actions_.push_back(Warn{"the coordinator refused this island for now: " + refused.why});
  is_connected_ = false;
  actions_.push_back(Connect{kLongestRetry});
}

void Member::receive(const Stamp&, const View& view) {
  if (options_.remembers_view) view_ = view;
}

// ---- keeping the state equal to the run's ----

void Member::receive(const Stamp& stamp, const Welcome& welcome) {
  sync_request_ = stamp.sequence;
  is_asking_ = will_be_answered_ = false;
  finish_.reset();
  id_ = welcome.island;
  is_welcome_ = true;
  num_failures_ = 0;
  alone_since_.reset();
  next_heartbeat_ = now_;
  commit_.reset();
  if (is_leaving_) return send(Leave{.why = leave_why_});
  Target target = {welcome.outer_step, welcome.hashes, welcome.sources, welcome.schedule};
  const RangeSet kept = set_of(welcome.holds);
  if (welcome.must_sync && swap_to(target)) {
    use(target.outer_step, target.schedule);
    swap(welcome.contributed, {});  // committed while this island was away
  }
  must_drop_ = must_drop_ || !kept.contains(holds_);
  if (welcome.must_sync) return reach(std::move(target));
  use(welcome.outer_step, welcome.schedule);
  target_.reset();
  is_fetching_ = false;
  if (must_drop_) adopt();
  resume();
}

void Member::receive(const Stamp& stamp, const Resync& resync) {
  sync_request_ = stamp.sequence;
  is_asking_ = will_be_answered_ = false;
  finish_.reset();
  actions_.push_back(Warn{
      fmt::format("getting the state of outer step {} again: {}", resync.outer_step, resync.why)});
  must_drop_ = must_drop_ || resync.drops_work;
  stop_reduce();
  commit_.reset();
  Target target = {resync.outer_step, resync.hashes, resync.sources, resync.schedule};
  if (swap_to(target)) {  // it was committed, and nobody may be left who has it
    use(target.outer_step, target.schedule);
    swap(resync.contributed, {});
  }
  reach(std::move(target));
}

// Swaps to the prepared result if that is the target; whether it was.
bool Member::swap_to(const Target& target) {
  const std::vector<StateHash> next = next_hashes();
  if (next.empty() || next != target.hashes) return false;
  // With gossip others may have made outer steps since, which do not change this state.
  return options_.plan.is_gossip ? target.outer_step > outer_step_
                                 : target.outer_step == outer_step_ + 1;
}

StateHash Member::prepared() const {
  const bool is_there = shadow_ && shadow_->hash && shadow_->stamp.outer_step == outer_step_;
  return is_there ? *shadow_->hash : StateHash{};
}

std::vector<StateHash> Member::next_hashes() const {
  if (prepared() == StateHash{}) return {};
  std::vector<StateHash> hashes = hashes_;
  hashes[static_cast<std::size_t>(shadow_->fragment)] = *shadow_->hash;
  return hashes;
}

// Without hashes it is the run's, as the newest state that is left.
bool Member::is_at(const Target& target) const {
  return outer_step_ == target.outer_step &&
         (hashes_ == target.hashes || (target.hashes.empty() && outer_step_ >= 0));
}

void Member::reach(Target target) {
  fetch_again_.reset();
  if (is_at(target) && may_change()) {
    target_ = std::move(target);  // reached when nothing can take the place of this state
    return stop_fetch();
  }
  if (is_at(target)) {
    use(target.outer_step, target.schedule);
    target_.reset();
    is_fetching_ = false;
    if (must_drop_) adopt();
    say_synced();
    return resume();
  }
  target_ = std::move(target);
  stop_fetch();
  const bool has_all = !hashes_.empty() && target_->hashes == hashes_;
  // Resync will name some.
  if ((target_->sources.empty() && !has_all) || target_->hashes.empty()) return;
  is_fetching_ = true;
  stop_reduce();
  shadow_.reset();
  is_fetch_under_way_ = true;
  fetches_step_ = target_->outer_step;
  fetches_schedule_ = target_->schedule;
  actions_.push_back(FetchState{target_->outer_step, target_->hashes, target_->sources});
}

void Member::stop_fetch() {
  is_fetching_ = false;
  if (!std::exchange(is_fetch_under_way_, false)) return;
  ++num_stops_;
  actions_.push_back(StopFetch{});
}

void Member::say_synced() {
  send(Synced{.outer_step = outer_step_,
              .hashes = hashes_,
              .holds = holds_.ranges(),
              .answers = sync_request_});
}

void Member::on(const StateFetched& event) {
  const bool was_stopped = num_stops_ > 0;
  const bool is_wanted =
      target_ && is_fetching_ && !was_stopped && event.outer_step == target_->outer_step;
  num_fetches_ = 0;
  if (!was_stopped) is_fetch_under_way_ = false;
  if (fetches_step_ == event.outer_step) use(event.outer_step, fetches_schedule_);
  outer_step_ = event.outer_step;
  hashes_ = event.hashes;
  shadow_.reset();
  commit_.reset();
  put_state();
  must_drop_ = must_drop_ || !options_.can_rebase;
  if (must_drop_) {
    adopt();
  } else {
    actions_.push_back(Adopt{.outer_step = outer_step_, .drops_work = false});
  }
  if (!is_wanted) {
    // Fetched when it was no longer wanted: the coordinator must hear what this island has now.
    if (!is_connected_ || joins_when_stopped_) return;
    if (target_ && outer_step_ == target_->outer_step && hashes_ == target_->hashes) {
      return reach(Target(*target_));
    }
    is_connected_ = is_welcome_ = false;
    actions_.push_back(Connect{});
    return;
  }
  target_.reset();
  is_fetching_ = false;
  if (!is_welcome_) return;
  say_synced();
  resume();
}

void Member::on(const FetchFailed& event) {
  if (num_stops_ > 0) return;
  is_fetch_under_way_ = false;
  if (!is_fetching_) return;
  is_fetching_ = false;
  actions_.push_back(Warn{"the state could not be fetched, and is asked for again: " + event.why});
  // The run has usually gone on meanwhile: a later fetch may fit between two outer steps.
  fetch_again_ =
      now_ + std::min(kLongestFetchAgain, kFirstFetchAgain * (1 << std::min(num_fetches_, 8)));
  ++num_fetches_;
}

void Member::on(const FetchStopped&) {
  --num_stops_;
  if (may_change()) return;
  if (joins_when_stopped_) return join();
  if (is_welcome_ && target_ && is_at(*target_)) reach(Target(*target_));
}

void Member::use(std::int64_t outer_step, const RoundSchedule& schedule) {
  if (is_same_setting(schedule, schedule_) && outer_step >= schedule_from_) return;
  schedule_ = schedule;
  schedule_from_ = outer_step;
  actions_.push_back(UseSchedule{outer_step, schedule});
}

// Drops all work that was not committed.
void Member::adopt() {
  must_drop_ = false;
  holds_ = {};
  in_round_ = false;
  handed_in_.reset();
  ++num_adopted_;
  actions_.push_back(Adopt{.outer_step = outer_step_, .drops_work = true});
}

// Repeats what the coordinator may not know, and hands in what it will not ask for.
void Member::resume() {
  // A pseudo-gradient that comes too late is part of the next one.
  if (in_round_ && handed_in_ && handed_in_->outer_step < outer_step_) handed_in_.reset();
  if (handed_in_) {
    send(handed_in_->ready, handed_in_->outer_step);
  } else if (!in_round_ && !holds_.empty()) {
    in_round_ = true;
    actions_.push_back(StartRound{});
  }
}

// The coordinator knows of an outer step that this island has no result of.
void Member::ask(const std::string& why) {
  stop_reduce();
  shadow_.reset();
  commit_.reset();
  is_asking_ = true;
  // What was told meanwhile comes in one piece over a link that held it back.
  if (will_be_answered_) return;
  will_be_answered_ = is_connected_ && newest_.outer_step > outer_step_;
  send(ReduceFailed{.unreachable = {}, .why = why});
}

// ---- outer steps ----

void Member::receive(const Stamp&, const Lease& lease) {
  if (handed_in_ && handed_in_->outer_step < outer_step_) handed_in_.reset();
  for (const BatchRange& range : lease.ranges) holds_.add(range);
  in_round_ = true;
  actions_.push_back(StartRound{.lease = lease, .drops_hand_in = was_dropped_ ? num_hand_ins_ : 0});
}

void Member::on(const RoundDone& event) {
  ++num_hand_ins_;
  if (event.num_adopted != num_adopted_) return;  // of work that is dropped
  in_round_ = was_dropped_ = false;
  handed_in_ = {event.outer_step, event.ready};
  if (event.outer_step == outer_step_ && outer_step_ >= 0) {
    const auto fragment = static_cast<std::size_t>(fragment_of(outer_step_));
    // The trainer has not seen the newest outer step yet: it comes too late for this one.
    if (event.ready.base_hash != hashes_[fragment]) --handed_in_->outer_step;
  }
  if (is_welcome_ && !target_) send(handed_in_->ready, handed_in_->outer_step);
}

void Member::receive(const Stamp& stamp, const Reduce& reduce) {
  if (target_) return;  // told again once it is in step
  if (stamp.outer_step != outer_step_) return ask("it is not at that outer step");
  stop_reduce();
  shadow_ = {.stamp = stamp, .fragment = reduce.fragment, .hash = {}};
  actions_.push_back(StartReduce{stamp, reduce});
}

void Member::stop_reduce() {
  if (!shadow_ || shadow_->hash) return;
  actions_.push_back(StopReduce{shadow_->stamp});
  shadow_.reset();
}

void Member::receive(const Stamp&, const AbandonReduce&) {
  stop_reduce();
  shadow_.reset();
}

void Member::receive(const Stamp&, const PutState& put) {
  to_put_ = put.hashes;
  put_state();
}

// The state asked for may be the result that this island is still making.
void Member::put_state() {
  if (to_put_.empty() || to_put_.size() != hashes_.size()) return;
  for (std::size_t f = 0; f < to_put_.size(); ++f) {
    if (to_put_[f] != StateHash{} && to_put_[f] != hashes_[f]) return;
  }
  actions_.push_back(UploadState{std::exchange(to_put_, {})});
}

void Member::on(const ReduceDone& event) {
  if (!shadow_ || shadow_->hash || event.stamp != shadow_->stamp) return;
  shadow_->hash = event.hash;
  if (is_welcome_) send(Prepared{.hash = event.hash});
  if (commit_) return settle_commit();
  if (target_ && swap_to(*target_)) {  // there was nobody to fetch it from
    use(target_->outer_step, target_->schedule);
    swap(false, {});
    reach(Target(*target_));
  }
}

void Member::on(const ReduceBroke& event) {
  if (!shadow_ || shadow_->hash || event.stamp != shadow_->stamp) return;
  shadow_.reset();
  if (commit_) {
    ask(event.why);
  } else if (is_welcome_) {
    send(ReduceFailed{.unreachable = event.unreachable, .why = event.why});
  }
}

void Member::receive(const Stamp& stamp, const Commit& commit) {
  if (target_) return;
  if (stamp.outer_step != outer_step_) return ask("it is not at that outer step");
  commit_ = {stamp, commit};
  if (!shadow_) return ask("it has no result of that outer step");
  if (shadow_->hash) settle_commit();
}

void Member::settle_commit() {
  const Commit commit = std::move(commit_->body);
  commit_.reset();
  if (*shadow_->hash != commit.hash) return ask("its result has another hash");
  const bool takes_part =
      std::any_of(commit.participants.begin(), commit.participants.end(),
                  [&](const Participant& participant) { return participant.island == id_; });
  use(outer_step_ + 1, commit.next);
  swap(takes_part, commit.participants);
  if (finish_) conclude(*finish_);
}

void Member::swap(bool was_mine, std::vector<Participant> participants) {
  const auto fragment = static_cast<std::size_t>(shadow_->fragment);
  hashes_[fragment] = *shadow_->hash;
  actions_.push_back(Swap{.outer_step = outer_step_,
                          .fragment = shadow_->fragment,
                          .hash = *shadow_->hash,
                          .was_mine = was_mine,
                          .participants = std::move(participants)});
  ++outer_step_;
  shadow_.reset();
  put_state();
  if (was_mine && handed_in_) {
    for (const BatchRange& range : handed_in_->ready.consumed) holds_.remove(range);
  }
  if (was_mine || in_round_) handed_in_.reset();
}

void Member::receive(const Stamp& stamp, const Dropped& dropped) {
  actions_.push_back(Warn{"this island's pseudo-gradient came too late: " + dropped.why});
  // The trainer may have handed in for a later outer step meanwhile.
  const bool is_newest = handed_in_ && (handed_in_->outer_step < stamp.outer_step ||
                                        handed_in_->ready.consumed.empty());
  was_dropped_ = was_dropped_ || is_newest;
  if (in_round_ && is_newest) handed_in_.reset();
}

}  // namespace atl::island
