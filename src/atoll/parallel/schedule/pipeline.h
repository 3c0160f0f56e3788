#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/parallel/schedule/schedule.h"

namespace atl::parallel {

/// How a model's stages lie on the ranks of a pipeline, and how many micro-batches pass through it.
/// A chunk is a row of stages on one rank. Chunk c is on rank c % num_ranks: several chunks a rank
/// interleave (Narayanan et al. 2021, "Efficient large-scale language model training", 2.2.2).
/// Folded, every other row of chunks goes back from the last rank to the first: with two chunks a
/// rank, a V (Qi et al. 2024, "Pipeline parallelism with controllable memory"). Chunks in a row
/// on the same rank hand their edge on without a transfer.
struct Pipeline {
  int num_ranks = 1;
  std::int64_t num_micro_batches = 1;
  /// The first stage of each chunk, ascending from 0, then the number of stages.
  std::vector<std::size_t> bounds;
  bool folded = false;

  std::size_t num_chunks() const { return bounds.size() - 1; }
  std::size_t num_stages() const { return bounds.back(); }
  std::size_t chunks_per_rank() const { return num_chunks() / static_cast<std::size_t>(num_ranks); }
  int rank_of(std::size_t chunk) const;
  /// The rank's chunk number `index`, from 0: the inverse of rank_of.
  std::size_t chunk_on(int rank, std::size_t index) const;
  /// The rank that a chunk's input comes from, or that its output goes to; -1: none, or the same
  /// rank has the chunk before, or after.
  int rank_before(std::size_t chunk) const;
  int rank_after(std::size_t chunk) const;
  std::size_t chunk_of(std::size_t stage) const;
  bool begins_chunk(std::size_t stage) const { return bounds[chunk_of(stage)] == stage; }
  bool ends_chunk(std::size_t stage) const { return bounds[chunk_of(stage) + 1] == stage + 1; }
  /// Ascending.
  std::vector<std::size_t> stages_of(int rank) const;
  /// Throws Error(kInternal) if it is none: a chunk without stages, fewer chunks than ranks.
  void check() const;
};

/// One chunk on one rank, as if there were no pipeline.
Pipeline whole_model(std::size_t num_stages, std::int64_t num_micro_batches = 1);

/// What a generator decides: the order of passes over chunks.
struct ChunkPass {
  enum class Kind {
    kForward,         ///< F of each stage, the first stage first
    kBackward,        ///< B and W of each stage, the last stage first
    kBackwardInput,   ///< B of each stage, the last stage first
    kBackwardWeight,  ///< W of each stage, the last stage first
  };
  Kind kind = Kind::kForward;
  std::size_t chunk = 0;
  std::int64_t micro_batch = 0;
};

/// The actions of `rank` that these passes over its chunks are: stage by stage, with the transfers
/// to and from the chunks beside them.
///
/// A send only begins there and ends while later actions run; ranks that waited for each other's
/// receives would wait forever under 1F1B. rank_schedule() says when it ends.
std::vector<Action> chunk_actions(const Pipeline& pipeline, int rank,
                                  std::span<const ChunkPass> passes);

}  // namespace atl::parallel
