#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/comm/collective.h"
#include "atoll/comm/collectives/background.h"
#include "atoll/comm/collectives/call_header.h"
#include "atoll/comm/transport.h"

namespace atl::comm {

/// Messages that move together; empty ones are left out on both sides.
class MessageBatch {
 public:
  explicit MessageBatch(Transport* transport) : transport_(transport) {}

  /// To and from a rank of the world.
  void send(int to, const void* data, std::size_t bytes) {
    if (bytes != 0) outgoing_.push_back({to, data, bytes});
  }
  void receive(int from, void* data, std::size_t bytes) {
    if (bytes != 0) incoming_.push_back({from, data, bytes});
  }
  /// Returns when all have moved.
  void move();
  /// Forgets what a failed call has left.
  void clear();

 private:
  Transport* transport_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

/// Carries collectives of two or more ranks out by messages alone, for backends that have no way of
/// their own. Keeps its memory from call to call. Steps and bytes (m = bytes of data, n = ranks),
/// each rank to each other directly:
///
///   every call but exchange   a header to each other, compared before anything moves
///   reduce_scatter  each part to its owner, who sums in rank order: (n - 1) / n m, in messages of
///                   transport.piece_bytes(), the next under way while the last is summed; scratch
///                   is 2 (n - 1) messages, at most 16 MiB, whatever m is
///   all_gather      each part to all others: (n - 1) / n m
///   all_reduce      both, of even parts: 2 (n - 1) / n m; up to 64 KiB in all, everything to
///                   everyone
///   broadcast       a binomial tree: m, log2(n) steps; more than 64 KiB to three or more ranks:
///                   even parts from the root, then all_gather
///   all_to_all, exchange  directly
///
class MessageCollectives {
 public:
  /// Through `transport`, which must outlive it.
  explicit MessageCollectives(Transport* transport);

  /// Throws PeerError when a rank calls something else, and what the transport throws.
  void run(const Collective& collective);

 private:
  using Parts = std::vector<std::int64_t>;

  /// A sum of parts under way: what reduce_scatter does, and the first half of all_reduce.
  struct Sum {
    const Parts* parts = nullptr;
    Tensor result;
    bool sends = false;
    std::int64_t chunk = 1;   // elements of a message
    std::int64_t rounds = 0;  // the same on all ranks
    std::size_t room = 0;     // bytes of a message
    std::int64_t round = 0;   // that is summed
  };

  int size() const { return call_->size(); }
  int self() const { return call_->self; }
  /// A member as a rank of the world.
  int world(int member) const { return call_->members[static_cast<std::size_t>(member)]; }

  void compare();
  void reduce_scatter(const Parts& parts, const Tensor& result);
  void run_rounds();
  void move(std::int64_t round);
  void sum();
  std::int64_t elements(int owner, std::int64_t round) const;
  std::byte* at(const Tensor& tensor, std::int64_t element) const;
  std::byte* room(std::size_t contributor, std::int64_t round) const;
  std::byte* scratch(std::size_t bytes);
  void cut_evenly();
  void all_gather(const Parts& parts, int root = -1);
  void all_reduce();
  void all_reduce_small();
  void broadcast();
  void broadcast_tree();
  void broadcast_parts();
  void all_to_all();
  void exchange();

  Transport* transport_;
  const Collective* call_ = nullptr;  // under way
  MessageBatch messages_;
  std::vector<CallHeader> mine_, theirs_;
  Parts parts_;  // even ones
  Sum sum_;
  std::vector<int> contributors_;
  std::vector<const void*> sources_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
  Background summing_;  // last: its thread uses the others
};

}  // namespace atl::comm
