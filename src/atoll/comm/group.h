#pragma once

// Ranks that call collectives together. Sums run in rank order whatever moves the bytes, so every
// backend gives the same bits.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/channel/work.h"
#include "atoll/comm/collective.h"

namespace atl::comm {

class World;

/// What one rank has sent and received through a group, in bytes of tensors; barriers and the
/// comparison of calls are not counted.
struct Traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t collectives = 0;
};

class Channel;

/// The channels of send() and recv() between this rank and one other, where they have their own:
/// neither way waits for the other, nor for any other rank.
struct PairChannels {
  int peer = 0;  ///< a rank of the group
  Channel* to = nullptr;
  Channel* from = nullptr;
};

/// Some ranks of a World, this one among them. All of them must make the same calls in the same
/// order; a rank that does not is named by an Error(kPeer) on the others, with operation, number
/// and shape. Calls are made from one thread of the rank. Every operation but the barrier exists in
/// two forms: one that returns when it is done, and start_*, which returns at once and runs beside
/// the caller. All calls of the groups of one Channel are carried out in the order in which they
/// are made; calls of different channels do not wait for each other. On a group of one rank every
/// call costs nothing. After the first calls none allocates memory, but for what Gloo or MPI do.
///
/// Dtypes: sums and extremes of f32, f64, bf16 (added in f32, rounded once), i32, i64; the others
/// move any dtype. Parts are size() + 1 ascending offsets in elements from 0 to all; they need not
/// be equal and may be empty.
class Group {
 public:
  using Where = comm::Where;

  /// World::group() and Mesh make them.
  Group(World& world, Channel& channel, std::vector<int> members, std::string name);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }
  /// Its ranks as ranks of the world, ascending.
  const std::vector<int>& members() const { return members_; }
  World& world() const { return world_; }
  /// In whose order its calls are carried out.
  const Channel& channel() const { return channel_; }
  Traffic traffic() const { return traffic_; }

  /// `data` becomes the reduction of all ranks' data.
  void all_reduce(Tensor data, Reduce reduce = Reduce::kSum, Where where = Where::current());
  Work start_all_reduce(Tensor data, Reduce reduce = Reduce::kSum, Where where = Where::current());

  /// How a reduce_scatter differs from the plain one.
  struct ReduceScatter {
    bool accumulate = false;                 ///< see Collective::accumulate
    std::span<const int> contributors = {};  ///< ranks of the group, ascending; empty: all
    Reduce reduce = Reduce::kSum;
  };
  /// `result`, as long as this rank's part, becomes the sum of all ranks' data within that part.
  void reduce_scatter(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                      const ReduceScatter& how, Where where = Where::current());
  void reduce_scatter(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                      Where where = Where::current()) {
    reduce_scatter(data, parts, result, {}, where);
  }
  Work start_reduce_scatter(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                            const ReduceScatter& how, Where where = Where::current());

  /// `data` holds this rank's part, and gets all others'.
  void all_gather(Tensor data, std::span<const std::int64_t> parts, Where where = Where::current());
  Work start_all_gather(Tensor data, std::span<const std::int64_t> parts,
                        Where where = Where::current());

  /// `data` becomes root's.
  void broadcast(Tensor data, int root, Where where = Where::current());
  Work start_broadcast(Tensor data, int root, Where where = Where::current());

  /// Part r of `data` goes to rank r; part r of `result` comes from it.
  void all_to_all(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                  std::span<const std::int64_t> result_parts, Where where = Where::current());
  Work start_all_to_all(Tensor data, std::span<const std::int64_t> parts, Tensor result,
                        std::span<const std::int64_t> result_parts, Where where = Where::current());

  /// Point to point: all of these move at the same time, so rings and pairs cannot deadlock. Only
  /// the ranks named need to call. Between a pair, pieces arrive in the order of the calls.
  void exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                Where where = Where::current());
  Work start_exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                      Where where = Where::current());
  /// One tensor to, or from, one rank. Where the pair has channels of its own
  /// (Axis::point_to_point) a message waits for those before it from the same rank to the same
  /// rank, and for nothing else; it is met by send() and recv(), started or not, and by no
  /// exchange(). Elsewhere it is an exchange() of one piece, in the order of the group's channel:
  /// two ranks that start to send to each other before they start to receive then wait for each
  /// other for ever.
  void send(Tensor data, int to, Where where = Where::current());
  Work start_send(Tensor data, int to, Where where = Where::current());
  void recv(Tensor data, int from, Where where = Where::current());
  Work start_recv(Tensor data, int from, Where where = Where::current());
  /// Gives pairs channels of their own, before the first call. Mesh does.
  void set_pair_channels(std::vector<PairChannels> channels) { pairs_ = std::move(channels); }

  /// Returns when every rank has called it.
  void barrier(Where where = Where::current());

  /// The part of n elements that each rank gets when they are shared evenly: rank r has
  /// [even_parts(n)[r], even_parts(n)[r + 1]), cut at multiples of `multiple`.
  std::vector<std::int64_t> even_parts(std::int64_t n, std::int64_t multiple = 1) const;

 private:
  // Each fills call_, which is used again so that a call allocates nothing.
  Collective& call(Op op, Where where);
  Collective& all_reduce_call(const Tensor& data, Reduce reduce, Where where);
  Collective& reduce_scatter_call(const Tensor& data, std::span<const std::int64_t> parts,
                                  const Tensor& result, const ReduceScatter& how, Where where);
  Collective& all_gather_call(const Tensor& data, std::span<const std::int64_t> parts, Where where);
  Collective& broadcast_call(const Tensor& data, int root, Where where);
  Collective& all_to_all_call(const Tensor& data, std::span<const std::int64_t> parts,
                              const Tensor& result, std::span<const std::int64_t> result_parts,
                              Where where);
  Collective& exchange_call(std::span<const Piece> sends, std::span<const Piece> receives,
                            Where where);
  /// The channel of messages to a rank, or from it.
  Channel& to(int peer) const;
  Channel& from(int peer) const;
  /// Gives the call its number, checks it, counts its bytes.
  void admit(Collective& collective);
  bool leaves_out(const Collective& collective) const;
  void run(Collective& collective, Channel& channel);
  Work start(Collective& collective, Channel& channel);

  World& world_;
  Channel& channel_;
  std::vector<PairChannels> pairs_;
  std::vector<int> members_;
  std::string name_;
  int rank_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t exchanges_ = 0;  // numbered apart: only some ranks call one
  Traffic traffic_;
  Collective call_;
};

}  // namespace atl::comm
