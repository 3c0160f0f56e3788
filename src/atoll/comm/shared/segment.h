#pragma once

// The memory that ranks of one host share, and how it is laid out.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "atoll/comm/collectives/call_header.h"

namespace atl::comm::shared {

/// What a slot of a queue holds.
enum class MessageKind : std::uint32_t {
  kCall = 1,          ///< a Descriptor: which collective the sender is in
  kBytes = 2,         ///< a piece of Transport::exchange()
  kContribution = 3,  ///< a piece of a collective's contribution
  kResult = 4,        ///< a piece of a collective's result, from the rank that made it
};

/// One piece on its way; its bytes follow it.
struct alignas(64) Slot {
  MessageKind kind;
  std::uint64_t bytes;  ///< of this piece
  std::uint64_t total;  ///< of the message that it is a piece of

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

/// A queue of pieces with one producer and one consumer, from one rank to another: slots [tail,
/// head) are full.
struct SpscQueue {
  alignas(64) std::atomic<std::uint64_t> head{0};  ///< written by the sender alone
  alignas(64) std::atomic<std::uint64_t> tail{0};  ///< written by the receiver alone
};

/// What one rank tells the others about itself.
struct alignas(64) RankBlock {
  std::atomic<std::uint32_t> wake_count{0};    ///< a futex word: counts changes of its queues
  std::atomic<std::uint32_t> asleep{0};        ///< whether anybody need wake it
  std::atomic<std::uint32_t> left{0};          ///< its World was destroyed
  std::atomic<std::uint32_t> inside{0};        ///< it is in the call below, not behind it
  std::atomic<std::int64_t> alive_ns{0};       ///< when it last did or waited for something
  std::atomic<std::uint64_t> call_version{0};  ///< odd while what is below is written
  CallHeader call;                             ///< its last call, for people
};

/// The first error on this host. The rank that sees an error first writes it, and all ranks report
/// the same one.
struct alignas(64) SharedFailure {
  std::atomic<std::uint32_t> state{0};  ///< 0: none, 1: being written, 2: written
  std::int32_t rank = -1;               ///< of the world; -1: unknown
  char text[960] = {};
};

/// Shared memory for the ranks of one host, mapped. It has no name anywhere, so nothing is left
/// behind whatever kills its users.
class Segment {
 public:
  /// Slots of a queue: enough for the half of a bucket of gradients (dp.bucket_mib), so that two
  /// ranks need not wait for each other while it moves.
  static constexpr std::uint64_t kSlots = 8;

  /// Throws Error(kResource) when there is not enough memory.
  static Segment create(int num_ranks);
  /// The segment that process `pid` created and still holds as `fd`. Throws Error(kIo) naming what
  /// the system refused, Error(kDamaged) when it is something else.
  static Segment open(int pid, int fd, int num_ranks);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  /// The descriptor that open() takes; needed until all have opened it.
  int fd() const { return fd_; }
  void close_fd();

  int num_ranks() const { return num_ranks_; }
  /// The bytes of a slot, which is how long a piece is: a multiple of 64.
  std::size_t piece_bytes() const { return piece_bytes_; }
  SharedFailure& failure() const;
  RankBlock& rank(int local) const;
  SpscQueue& queue(int from, int to) const;
  Slot& slot(int from, int to, std::uint64_t index) const;

 private:
  struct Header;
  Segment(int fd, int num_ranks);
  void map();
  std::size_t queues_offset() const;
  std::size_t slots_offset() const;
  std::size_t bytes() const;

  int fd_ = -1;
  int num_ranks_ = 0;
  std::size_t piece_bytes_ = 0;
  std::byte* base_ = nullptr;
};

/// Which host this process runs on, as 32 hexadecimal digits: equal for two processes only if they
/// see the same process ids and may open each other's files in /proc.
std::string host_id();

}  // namespace atl::comm::shared
