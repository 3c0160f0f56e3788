// How an island leaves, and what it does after the end of the run: the last part of Member.

#include <fmt/format.h>

#include <utility>

#include "atoll/island/client/member.h"

namespace atl::island {

namespace {

constexpr Seconds kLeaveWithin = 5;

}  // namespace

void Member::on(const LeaveWanted& event) {
  is_leaving_ = true;
  leave_why_ = event.why;
  leave_by_ = now_ + kLeaveWithin;
  if (!is_connected_ || !is_welcome_) return halt("it has left", true);
  send(Leave{.why = event.why});
}

void Member::receive(const Stamp&, const Finish& finish) {
  // The last result is still being made or fetched: the trainer is told when it is there.
  if (!commit_ && !is_asking_) return conclude(finish);
  if (!finish_) {
    finish_ = finish;
    return;
  }
  // Said twice it lets go: nobody gives the result any more.
  halt(fmt::format("{}; nobody was left to get the model of the last outer step from, and this "
                   "island's is that of outer step {}: the newest checkpoint of any other island "
                   "has the final one",
                   finish.why, outer_step_),
       finish.is_done);
}

void Member::halt(const std::string& why, bool is_done, bool is_mistake) {
  stop_reduce();
  actions_.push_back(Halt{.why = why, .is_done = is_done, .is_mistake = is_mistake});
  part("");
}

// ---- after the end of the run ----

// An island without the final state has nothing to give, so it does not stay.
void Member::conclude(const Finish& finish) {
  const bool has_final_state = !target_ && outer_step_ >= newest_.outer_step;
  if (!finish.is_done || is_leaving_ || !has_final_state) return halt(finish.why, finish.is_done);
  stop_reduce();
  has_ended_ = is_told_ = true;
  holds_ = {};
  actions_.push_back(Halt{.why = finish.why, .is_done = true});
}

// A coordinator that was killed is started again, and may have an island to serve that was killed,
// too. So the member joins again, with the final state.
void Member::stay(const CoordinatorReached&) {
  is_connected_ = true;
  is_welcome_ = is_told_ = false;
  join();
}

void Member::stay(const CoordinatorLost& event) {
  if (is_connected_ && is_welcome_) {
    actions_.push_back(Warn{
        fmt::format("lost the coordinator after the end of the run: {}; this island stays {:.0f} "
                    "s for it, as others may need the final model",
                    event.why, options_.stays_for)});
  }
  is_connected_ = is_welcome_ = is_told_ = false;
  bytes_from_.clear();
  if (!alone_since_) alone_since_ = now_;
  connect_again();
}

void Member::stay(const LeaveWanted& event) {
  has_saved_ = true;
  leave_why_ = event.why;
  if (is_told_) say_saved();
}

// Before Finish, Leave would mean that this island is no source.
void Member::say_saved() {
  send(Leave{.why = leave_why_});
}

void Member::stay(const MemberTicked& event) {
  send_heartbeat(event);
  if (!alone_since_ || now_ - *alone_since_ <= options_.stays_for) return;
  part(fmt::format(
      "no coordinator for {:.0f} s after the end of the run: this island ends. One that "
      "was killed before it had saved the final model has an older one: the newest "
      "checkpoint of this island has the final one",
      now_ - *alone_since_));
}

// Finish comes twice on a connection: the run is over, and all have saved the final model.
void Member::stay(const CoordinatorSaid& event) {
  if (!is_connected_ || !note(event.message.stamp)) return;
  const Stamp& stamp = event.message.stamp;
  const ToIsland& body = event.message.body;
  if (const auto* finish = std::get_if<Finish>(&body)) {
    if (!finish->is_done || std::exchange(is_told_, true)) return part(finish->why);
    if (has_saved_) say_saved();
  } else if (const auto* put = std::get_if<PutState>(&body)) {
    receive(stamp, *put);
  } else if (const auto* view = std::get_if<View>(&body)) {
    receive(stamp, *view);
  } else if (const auto* refused = std::get_if<Refused>(&body)) {
    if (refused->is_final) return part(refused->why);
    receive(stamp, *refused);
  } else if (const auto* welcome = std::get_if<Welcome>(&body)) {
    id_ = welcome->island;
    is_welcome_ = true;
    num_failures_ = 0;
    alone_since_.reset();
    next_heartbeat_ = now_;
    if (!welcome->must_sync) return;
    stay_in_step(stamp, {welcome->outer_step, welcome->hashes, {}, welcome->schedule});
  } else if (const auto* resync = std::get_if<Resync>(&body)) {
    stay_in_step(stamp, {resync->outer_step, resync->hashes, {}, resync->schedule});
  }
}

// The coordinator asks whether this island has the final state. It says Finish again after that.
void Member::stay_in_step(const Stamp& stamp, Target target) {
  is_told_ = false;
  sync_request_ = stamp.sequence;
  if (is_at(target)) return say_synced();
  part(
      fmt::format("the run goes on from outer step {} again, and this island ended with outer step "
                  "{}",
                  target.outer_step, outer_step_));
}

void Member::part(const std::string& why) {
  has_halted_ = true;
  actions_.push_back(Part{why});
}

}  // namespace atl::island
