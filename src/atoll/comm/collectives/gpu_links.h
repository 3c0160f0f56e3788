#pragma once

// How bytes go from one rank's GPU to another's without the host: what NCCL implements, and a
// test's stand-in.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/comm/transport.h"
#include "atoll/device/device.h"

namespace atl::comm {

/// The links of one channel between the GPUs of its ranks. Used by one thread at a time, but for
/// abort().
class GpuLinks {
 public:
  virtual ~GpuLinks() = default;

  /// The stream of this rank's GPU on which bytes move.
  virtual Stream& stream() = 0;
  /// What is queued from here on runs behind all that the GPU's other streams have queued so far.
  virtual void begin() = 0;
  /// Makes what `members` (ranks of the world, ascending) need to reach each other; `self` is this
  /// rank's place among them. Each of them calls it, once, before the first exchange(), also where
  /// it has nothing to move.
  virtual void connect(std::span<const int> members, int self) = 0;
  /// Queues all of these on stream(): they move at the same time, between a pair in order. Peers
  /// are places among `members`, which are connected. Those that send or receive something call it,
  /// the others need not.
  virtual void exchange(std::span<const int> members, int self, std::span<const Outgoing> outgoing,
                        std::span<const Incoming> incoming) = 0;
  /// Whether sums have an order of the links' own, which topology and version decide: these two are
  /// then called for them, by all of `members`, in place of exchange().
  virtual bool has_own_sums() const { return false; }
  /// Queues on stream(): `data` of each becomes the sum of all.
  virtual void all_reduce(std::span<const int> members, const Tensor& data);
  /// The same of parts: `result` becomes the sum of part `self` of all `data`. It is that part or
  /// elsewhere.
  virtual void reduce_scatter(std::span<const int> members, int self, const Tensor& data,
                              std::span<const std::int64_t> parts, const Tensor& result);
  /// Returns when all that was queued is done. Throws PeerError when it is not within the timeout,
  /// or a rank is lost.
  virtual void finish() = 0;
  /// Ends what is under way on another thread with an error.
  virtual void abort() noexcept = 0;
  /// Whether calls must be made by the thread that owns the device.
  virtual bool is_for_one_thread() const { return false; }
};

/// Makes the links of a channel whose ranks reach each other by `base`, which outlives them.
using MakeGpuLinks = std::function<std::unique_ptr<GpuLinks>(Transport& base)>;

}  // namespace atl::comm
