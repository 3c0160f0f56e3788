#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/island/client/member.h"
#include "atoll/island/client/round_tracker.h"
#include "atoll/island/client/schedule_book.h"
#include "atoll/island/simulation/world.h"

namespace atl::island {

/// An island of a simulated run: the Member and the RoundTracker that real ones have, and stand-ins
/// for its parameters, its exchange and its disk.
class SimulatedIsland {
 public:
  /// `index` from 0; `speed` relative to the others.
  SimulatedIsland(SimulatedWorld& world, int index, double speed);
  int index() const { return index_; }

  /// From its checkpoint, or as new.
  void start();
  void crash();
  void stop(bool stopped);
  /// And, if so, is started again so much later.
  void leave(std::optional<Seconds> returns_after = {});
  void slow_down(double factor) { speed_ *= factor; }
  void flip_results(int count) { num_flips_ = count; }
  void spoil_norm(double norm) { next_norm_ = norm; }

  /// What a connection brings, in order.
  void receive(const MemberEvent& event);

  bool is_up() const { return member_.has_value(); }
  bool is_stopped() const { return num_stops_ > 0; }
  /// It has ended, of its own or because the run is done; it does not start again.
  bool has_ended() const { return has_ended_; }
  bool was_turned_out() const { return was_turned_out_; }
  const Member& member() const { return *member_; }
  std::uint64_t life() const { return life_; }
  const std::string& name() const { return name_; }
  Seconds trained_seconds() const { return trained_seconds_; }
  /// What it offers for that outer step; nothing once it has lost it.
  std::optional<StateHash> delta(std::int64_t outer_step) const;

 private:
  // The anchor of a fragment that the parameters grew from.
  struct Anchor {
    std::int64_t outer_step = 0;  // so many are in it
    StateHash hash;
  };
  struct Checkpoint {
    std::vector<Anchor> anchors;
    RoundTracker::Work work;
  };
  // What became of the outer state, until the trainer has acted on it.
  struct Change {
    std::int64_t outer_step = 0;    // that are in it
    std::vector<StateHash> hashes;  // of one fragment, or of all
  };

  struct Offer {
    StateHash base;
    std::vector<BatchRange> consumed;
  };

  void post(Seconds after, std::function<void()> what);
  void later(std::function<void()> what);
  void handle(const MemberEvent& event);
  void tick();
  void perform(const SendToCoordinator& action);
  void perform(const Connect& action);
  void perform(const StartReduce& action);
  void perform(const StopReduce& action);
  void perform(const Swap& action);
  void perform(const FetchState& action);
  void perform(const StopFetch& action);
  void perform(const UploadState&) {}  // here everybody reaches everybody
  void perform(const Adopt& action);
  void perform(const StartRound& action);
  void perform(const UseSchedule& action);
  void perform(const Halt& action);
  void perform(const Part&);
  void perform(const Warn&) {}
  void end_reduce(const Stamp& stamp, const Reduce& reduce);
  void end_fetch(const FetchState& action, std::uint64_t number);
  void go_on();
  void train();
  void hand_in(const RoundTracker::Decision& due);
  Measurements measure() const;
  void expect_held(const std::vector<BatchRange>& consumed);
  void hear_commit(const Swap& swap);
  void move(int fragment, std::int64_t outer_step, const StateHash& hash);
  void adopt(bool drops_work);
  std::int64_t anchored_step() const;
  void save();

  SimulatedWorld& world_;
  int index_;
  std::vector<IslandId> fetches_from_;
  Seconds fetches_until_ = 0;
  std::string name_;
  IslandId id_ = kNobody;  // as it was told the last time, by whichever coordinator
  double speed_;
  std::optional<Member> member_;
  std::uint64_t life_ = 0;
  int num_stops_ = 0;
  std::deque<std::function<void()>> deferred_;  // while it is stopped
  bool has_ended_ = false;
  bool was_turned_out_ = false;
  bool is_leaving_ = false;
  bool has_heard_end_ = false;   // of the run, and saves
  bool has_saved_last_ = false;  // the final model
  std::optional<Seconds> returns_after_;
  int num_flips_ = 0;
  double next_norm_ = 1;

  RoundTracker tracker_;
  std::vector<Anchor> anchors_;  // by fragment
  Checkpoint saved_;
  Change change_;     // to be adopted, or rebased on
  Change committed_;  // to be applied
  bool is_stepping_ = false;
  std::uint64_t stretch_ = 0;  // of steps; tells old timers from new ones
  // Times that work was dropped: told to the trainer, and heard by it.
  std::uint64_t num_drops_ = 0;
  std::uint64_t num_adopted_ = 0;
  Seconds next_trainer_event_ = 0;
  std::map<std::int64_t, Offer> deltas_;  // by outer step
  std::uint64_t num_fetches_ = 0;
  std::uint64_t num_stopped_ = 0;  // of these, from the first one on
  Seconds stops_until_ = 0;
  Seconds trained_seconds_ = 0;
  ScheduleBook schedules_;
  Measurements measured_;
};

}  // namespace atl::island
