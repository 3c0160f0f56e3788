#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/comm/where.h"
#include "atoll/tensor/tensor.h"

namespace atl::comm {

/// The operations that all ranks of a group take part in; kExchange: any pairs among them.
enum class Op : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kExchange,
  kBarrier,
};

/// "all_reduce", "reduce_scatter", ...
const char* op_name(Op op);

/// How contributions become one: element by element, in rank order, from the lowest rank up.
enum class Reduce : std::uint8_t { kSum, kMax, kMin };

/// A tensor that goes to, or comes from, one rank of the group.
struct Piece {
  int peer = 0;
  Tensor tensor;
};

/// One call of a collective as one rank makes it: plain data that is recorded, compared between
/// ranks, queued and carried out.
struct Collective {
  Op op = Op::kBarrier;
  std::uint64_t sequence = 0;  ///< number of this call in its group, from 1; the same on all ranks
  std::vector<int> members;    ///< the group's ranks as ranks of the world, ascending
  int self = 0;                ///< this rank's place among the members

  /// What is given. In place for all_reduce, all_gather and broadcast. Undefined on a rank that
  /// contributes nothing to a reduce_scatter.
  Tensor data;
  /// What is made: of reduce_scatter this rank's part, of all_to_all what comes. May be the same
  /// memory as this rank's part of `data`.
  Tensor result;
  /// reduce_scatter, all_gather: size() + 1 ascending offsets; part r of `data` is rank r's, in
  /// elements. all_to_all: what goes to rank r; result_parts: what comes from it.
  std::vector<std::int64_t> parts;
  std::vector<std::int64_t> result_parts;
  std::vector<Piece> sends, receives;  ///< of kExchange

  Reduce reduce = Reduce::kSum;
  /// reduce_scatter: result = ((result + d0) + d1) + ... instead of (d0 + d1) + ...
  bool accumulate = false;
  /// reduce_scatter: those that contribute, ascending; empty: all.
  std::vector<int> contributors;
  int root = 0;  ///< of broadcast

  std::string group;  ///< its name, for messages: "dp"
  Where where;

  int size() const { return static_cast<int>(members.size()); }
  /// "all_reduce #17 of dp, f32 (1024), at step.cpp:81".
  std::string to_string() const;
};

/// What a call is about: its data; for reduce_scatter all parts, of which a rank that contributes
/// nothing has no tensor; for exchange the first piece.
Spec described_spec(const Collective& collective);

/// The part of a path behind its last slash.
std::string_view file_name(const char* path);

}  // namespace atl::comm
