#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/collective.h"

namespace atl::comm {

/// Bytes that go to, or come from, one rank of the world.
struct Outgoing {
  int to = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};
struct Incoming {
  int from = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// How ranks of a world reach each other: what a backend implements. Each channel of a World has
/// one. exchange() and run() are called from one thread at a time. A rank that is gone, or does not
/// answer within the timeout, is an Error(kPeer) (PeerError) that names it.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "threads", "mpi", "gloo", ...
  virtual std::string name() const = 0;
  /// Moves all of these at the same time and returns when they are done. Between a pair of ranks
  /// bytes arrive in the order in which they were sent, and sizes match one to one.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) = 0;
  /// Carries a collective out in a way of its own, such as reading the others' memory; false when
  /// pieces of exchange() shall do it.
  virtual bool run(const Collective& /*collective*/) { return false; }
  /// How many bytes one message should have where a collective can choose: enough to be fast, few
  /// enough that the next is under way while the last is summed.
  virtual std::size_t piece_bytes() const { return std::size_t{1} << 20; }
  /// A number that ranks have in common when bytes between them cross no network; the same on all
  /// ranks.
  virtual int host(int rank) const { return rank; }
  /// Opens another transport between some ranks of the world, whose messages never wait for those
  /// of this one. All `members` (ascending, this rank among them) call it, with the same members;
  /// `number` (from 1) is one that no other open_channel() of these members had. Called on the
  /// world's first transport, which outlives the new one; calls may be under way on both.
  virtual std::unique_ptr<Transport> open_channel(int number, std::span<const int> members) = 0;
  /// This rank ends with an error: ranks that wait for it learn that at once, where the backend can
  /// tell them. May be called while another thread of this rank is in exchange() or run(), which
  /// then should end.
  virtual void abort(const std::string& /*why*/) noexcept {}
  /// The same, where it is known that `why` happened to `rank` (of the world; -1: unknown): a
  /// backend that can names that rank to the others.
  virtual void give_up(int /*rank*/, const std::string& why) noexcept { abort(why); }
};

}  // namespace atl::comm
