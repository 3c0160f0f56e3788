#pragma once

// What a collective moves and sums, whatever carries it: windows of shared memory, or sockets.

#include <cstddef>
#include <utility>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/shared/segment.h"

namespace atl::comm::shared {

/// A message to, or from, another rank.
struct Message {
  int peer = 0;  ///< its place among those that the mover knows
  MessageKind kind = MessageKind::kBytes;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  /// A message that becomes known only little by little, such as sums: how much is there. Null:
  /// all.
  const std::size_t* ready = nullptr;
  std::size_t done = 0;
};

/// The sum (or extreme) of what comes with MessageKind::kContribution and what this rank has.
struct Reduction {
  Dtype dtype = Dtype::kF32;
  Reduce how = Reduce::kSum;
  bool accumulate = false;        ///< the result comes first in the chain
  std::vector<int> contributors;  ///< places, in rank order; empty: no reduction
  const std::byte* own = nullptr;
  std::byte* result = nullptr;
  std::size_t bytes = 0;
  /// The result overwrites what this rank sends: it waits until all sends but those of results are
  /// done.
  bool after_sends = false;
  std::size_t done = 0;

  /// Forgets all, but keeps the memory.
  void clear() {
    std::vector<int> kept = std::move(contributors);
    kept.clear();
    *this = {};
    contributors = std::move(kept);
  }
};

/// What moves messages and sums.
class MessageMover {
 public:
  virtual ~MessageMover() = default;

  /// Between a pair, messages of one kind move in the order in which they are added; results move
  /// beside the others. Empty ones do not move at all.
  virtual void send(Message message) = 0;
  virtual void receive(Message message) = 0;
  /// The one reduction of a call, empty, to be filled in.
  virtual Reduction& reduction() = 0;
  /// Takes up what reduction() has been filled with.
  virtual void reduce() = 0;
  /// How much of the reduction is done, for Message::ready.
  virtual const std::size_t* reduced() const = 0;
  /// How much of the last message that receive() took has come.
  virtual const std::size_t* received() const = 0;
};

/// Gives `mover` all that a collective moves and sums on this rank, but for the comparison of
/// calls; not of kExchange. `places`: the collective's members as the mover knows them. An
/// all_reduce of up to `small` bytes is one journey: everybody sends all to all and sums all.
void add_messages(const Collective& collective, const std::vector<int>& places, std::size_t small,
                  MessageMover& mover);

}  // namespace atl::comm::shared
