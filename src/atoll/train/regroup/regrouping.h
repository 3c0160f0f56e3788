#pragma once

// The ranks of a run, and how a rank gets from one world to the next when some are lost or others
// join.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/train/config/config.h"
#include "atoll/train/ranks/membership.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// What a rank tells the others when it enters a world; numbers, because collectives send numbers.
struct Hello {
  double has_state = 0;      ///< 1: it holds a part of the training state
  double old_rank = -1;      ///< in the world before; -1: it is new
  double old_size = 0;       ///< ranks of the world before
  double steps_taken = 0;    ///< of the run
  double has_committed = 0;  ///< 1: it has also made the update of the step under way
};

/// The world that a rank is in.
class Regrouping {
 public:
  /// The ranks never change. `config` and `world` must outlive this; so for the others below.
  Regrouping(const TrainConfig& config, comm::World& world) : config_(config), world_(&world) {}
  /// This process alone.
  explicit Regrouping(const TrainConfig& config);
  /// Ranks come and go; `membership` gives the worlds.
  Regrouping(const TrainConfig& config, Membership& membership)
      : config_(config), membership_(&membership) {}

  /// Enters the first world. Returns the Hello of each rank, by rank; this rank has no state yet.
  /// Throws Error on all ranks when the settings do not fit the ranks.
  std::vector<Hello> enter();
  /// Leaves the present world. The other ranks receive `why`, so that none waits for this rank;
  /// empty: all leave at the same time. ranks() stay the old ones until enter_next().
  void leave(const std::string& why);
  /// Enters the next world, and tries again when a rank is lost before all have met. `mine` says
  /// what this rank has; this function fills in its old rank and size.
  std::vector<Hello> enter_next(Hello mine);
  /// Enters the next world only for work that the remaining ranks still do together: they make no
  /// layout, and ranks() is no longer valid. Throws Error(kPeer) when they do not meet.
  comm::World& enter_with_those_left();

  /// The ranks now.
  Ranks& ranks() { return *ranks_; }
  const Ranks& ranks() const { return *ranks_; }
  /// Whether ranks may come and go.
  bool is_possible() const { return membership_ != nullptr; }
  /// Whether the set of ranks should change. Only the lead calls it, between steps.
  bool is_wanted() const { return membership_ != nullptr && membership_->wants_change(); }
  /// Ranks of the world before this one.
  int old_size() const { return old_size_; }
  /// Seconds since leave(), or since the constructor.
  double seconds() const;

 private:
  std::vector<Hello> meet(const Hello& mine);

  const TrainConfig& config_;
  std::unique_ptr<comm::World> own_world_;  // unless somebody else has it
  comm::World* world_ = nullptr;
  Membership* membership_ = nullptr;  // null: ranks do not change
  std::optional<Ranks> ranks_;
  int old_rank_ = -1, old_size_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Whether any of these ranks is training already.
bool is_under_way(const std::vector<Hello>& hellos);
/// The number of steps that every rank must have taken before all go on together. If one rank has
/// made the update of the step that was broken off, every rank was prepared, so all make it;
/// otherwise no rank makes it.
std::int64_t steps_to_go_on_from(const std::vector<Hello>& hellos);
/// The first rank that has a part of the state.
int first_holder(const std::vector<Hello>& hellos);

}  // namespace atl::train
