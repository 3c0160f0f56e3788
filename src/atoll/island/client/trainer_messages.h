#pragma once

// What an island's trainer and its client tell each other.

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "atoll/island/client/member.h"
#include "atoll/island/outer/state.h"
#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// What an island has trained since its last contribution that was committed.
struct Contribution {
  std::int64_t outer_step = 0;  ///< that it is for: the changes seen so far lead to it
  int fragment = 0;
  std::shared_ptr<const std::vector<float>> delta;  ///< packed, the leading rank's part
  StateHash base_hash;                              ///< of the FragmentState that it grew from
  std::int64_t tokens = 0;
  std::vector<BatchRange> consumed;
  double loss = 0;           ///< mean over the tokens
  double step_seconds = 0;   ///< of an inner step, lately
  double learning_rate = 0;  ///< of the last one
};

/// The outer state has moved.
struct OuterChange {
  enum class Kind {
    kCommitted,  ///< by an outer step
    kReplaced,   ///< by state that was fetched, for one fragment or all
  };
  Kind kind = Kind::kCommitted;
  std::int64_t outer_step = 0;  ///< of kCommitted: that one; of kReplaced: those that are in it
  bool drops_work = false;      ///< of kReplaced: what was trained and not committed is void
  int fragment = 0;             ///< of kCommitted
  bool contributed = false;     ///< this island's pseudo-gradient is in it
  std::shared_ptr<const FragmentState> state;  ///< of the fragment now; null for kReplaced
  int num_participants = 0;
  std::int64_t tokens = 0;      ///< of all of them
  double exchange_seconds = 0;  ///< from the coordinator's call to the commit
  /// With gossip: how far its anchor was from its partners', relative; else 0.
  double spread = 0;
  std::uint64_t sent_bytes = 0;  ///< payload, by this island, since the change before
  std::uint64_t received_bytes = 0;
};

/// What the trainer is told, in this order.
using ClientNews = std::variant<OuterChange, StartRound, UseSchedule>;

}  // namespace atl::island
