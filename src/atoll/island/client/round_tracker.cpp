#include "atoll/island/client/round_tracker.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"

namespace atl::island {

namespace {

std::int64_t num_batches(const std::vector<BatchRange>& ranges) {
  std::int64_t sum = 0;
  for (const BatchRange& range : ranges) sum += range.size();
  return sum;
}

}  // namespace

RoundTracker::RoundTracker(const OuterTiming& timing) : timing_(timing) {}

std::vector<BatchRange> RoundTracker::Work::holds() const {
  std::vector<BatchRange> all = trained;
  all.insert(all.end(), left.begin(), left.end());
  return all;
}

void RoundTracker::begin(std::int64_t outer_step, Work work) {
  seen_ = outer_step;
  work_ = std::move(work);
  in_round_ = !work_.left.empty() || !work_.trained.empty();
}

// ---- what happens ----

// The answer to a hand-in may come after the next hand-in, to which it does not apply.
void RoundTracker::granted(const Lease& lease, std::uint64_t drops_hand_in) {
  leases_.push_back(lease);
  if (is_exchanging_ && drops_hand_in == num_hand_ins_) is_dropped_ = true;
}

void RoundTracker::committed(std::int64_t outer_step, int fragment, bool contributed) {
  ATOLL_CHECK(!change_, "outer step {} is committed before what came before is settled",
              outer_step + 1);
  if (!contributed) {
    change_ = {.outer_step = outer_step, .fragment = fragment};
    return;
  }
  ATOLL_CHECK(is_exchanging_ && !is_committed_ && outer_step == handed_in_,
              "outer step {} was committed with work that was not handed in for it",
              outer_step + 1);
  is_committed_ = true;  // to be applied when it is due
  seen_ = outer_step + 1;
}

void RoundTracker::replaced(std::int64_t outer_step, bool drops_work) {
  ATOLL_CHECK(!change_, "state of outer step {} comes before what came before is settled",
              outer_step);
  change_ = {.is_replacement = true, .outer_step = outer_step, .drops_work = drops_work};
  // Leases that were granted before belong to the dropped work.
  if (drops_work) leases_.clear();
}

// Extends the last range where possible; ranges that are handed in stay separate.
void RoundTracker::trained(std::int64_t num_steps, std::int64_t tokens, double loss_sum) {
  auto& all = work_.trained;
  std::size_t num_done = 0;  // of the ranges left
  for (std::int64_t rest = num_steps; rest > 0;) {
    ATOLL_CHECK(num_done < work_.left.size(), "a step on a batch that was not leased");
    BatchRange& range = work_.left[num_done];
    const std::int64_t taken = std::min(rest, range.size());
    const bool grows = all.size() > handed_in_ranges_ && all.back().end == range.begin;
    if (!grows) all.push_back({range.begin, range.begin});
    all.back().end += taken;
    range.begin += taken;
    rest -= taken;
    if (range.size() == 0) ++num_done;
  }
  work_.left.erase(work_.left.begin(), work_.left.begin() + static_cast<std::ptrdiff_t>(num_done));
  work_.tokens += tokens;
  work_.loss_sum += loss_sum;
  steps_since_hand_in_ += num_steps;
}

// ---- what to do ----

// Whether the answer to the last hand-in has to be acted on: before the next hand-in, or after
// apply_after steps.
bool RoundTracker::is_due() const {
  return is_exchanging_ && (is_round_done() || steps_since_hand_in_ >= apply_after_);
}

RoundTracker::Decision RoundTracker::next() const {
  const Decision of_hand_in = {.outer_step = handed_in_, .fragment = fragment_of(handed_in_)};
  const auto hand_in = [&](Do what) {
    Decision decision = of_hand_in;
    decision.what = what;
    return decision;
  };
  // The state of a change contains what was committed before it. So a commit is applied first, due
  // or not: else its batches would count as not committed and be handed in again.
  const bool must_settle = change_.has_value() || is_due();
  if (must_settle && is_committed_) return hand_in(Do::kApply);
  if (change_ && change_->is_replacement) {
    return {
        .what = Do::kAdopt, .outer_step = change_->outer_step, .drops_work = change_->drops_work};
  }
  if (change_) {
    return {.what = Do::kRebase,
            .outer_step = change_->outer_step,
            .fragment = change_->fragment,
            .takes_back = is_exchanging_ && change_->outer_step == handed_in_};
  }
  if (is_due()) return is_dropped_ ? hand_in(Do::kTakeBack) : Decision{};
  if (is_round_done()) {
    return {.what = Do::kHandIn, .outer_step = seen_, .fragment = fragment_of(seen_)};
  }
  if (in_round_) return {.what = Do::kTrain};
  return {.what = leases_.empty() ? Do::kWait : Do::kBeginRound};
}

void RoundTracker::begun() {
  ATOLL_CHECK(!in_round_ && !leases_.empty(), "a round begins without a lease or within another");
  work_.left = std::move(leases_.front().ranges);
  leases_.pop_front();
  // Without batches: what there is, is to be handed in again.
  in_round_ = !work_.left.empty() || !work_.trained.empty() || timing_.ends_with_mean;
}

void RoundTracker::handed_in() {
  ATOLL_CHECK(!is_exchanging_ && is_round_done(), "handed in while a round or an exchange goes on");
  handed_in_ = seen_;
  handed_in_ranges_ = work_.trained.size();
  handed_in_tokens_ = work_.tokens;
  handed_in_loss_sum_ = work_.loss_sum;
  ++num_hand_ins_;
  is_exchanging_ = true;
  is_dropped_ = false;
  steps_since_hand_in_ = 0;
  apply_after_ = timing_.apply_after;
  in_round_ = false;
}

// Removes what was handed in, which is committed, and keeps what was trained since.
void RoundTracker::applied() {
  ATOLL_CHECK(is_committed_, "nothing was committed that could be applied");
  work_.trained.erase(work_.trained.begin(),
                      work_.trained.begin() + static_cast<std::ptrdiff_t>(handed_in_ranges_));
  work_.tokens -= handed_in_tokens_;
  work_.loss_sum -= handed_in_loss_sum_;
  forget_hand_in();
}

void RoundTracker::taken_back() {
  ATOLL_CHECK(is_dropped_, "nothing was dropped that could be taken back");
  forget_hand_in();
}

void RoundTracker::rebased() {
  ATOLL_CHECK(change_ && !change_->is_replacement, "no fragment was to be rebased");
  seen_ = change_->outer_step + 1;
  if (change_->outer_step >= handed_in_) forget_hand_in();
  change_.reset();
}

void RoundTracker::adopted() {
  ATOLL_CHECK(change_ && change_->is_replacement, "no state was to be adopted");
  seen_ = change_->outer_step;
  if (change_->drops_work) {
    forget_work();
  } else {
    forget_hand_in();
  }
  change_.reset();
}

void RoundTracker::end() {
  forget_work();
  leases_.clear();
  change_.reset();
}

void RoundTracker::forget_hand_in() {
  is_exchanging_ = is_committed_ = is_dropped_ = false;
  handed_in_ranges_ = 0;
}

void RoundTracker::forget_work() {
  forget_hand_in();
  work_ = {};
  in_round_ = false;
}

std::int64_t RoundTracker::steps_ahead() const {
  const std::int64_t left = num_batches(work_.left);
  const std::int64_t until_due = apply_after_ - steps_since_hand_in_;
  return is_exchanging_ ? std::min(left, until_due) : left;
}

}  // namespace atl::island
