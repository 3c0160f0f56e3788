#pragma once

#include <vector>

#include "atoll/parallel/compress/compression.h"
#include "atoll/parallel/compress/piece_coder.h"

namespace atl::parallel {

/// Updated values that travel as 4-bit differences (SDP4Bit, Jia et al. 2024). Each rank updates
/// masters, its part of the values. What all ranks compute with is published values, the same bits
/// everywhere: a step adds to them the decoded difference of masters to published values. What a
/// difference leaves is part of the next one, so that published values follow masters and no error
/// adds up.
class WeightDifferences {
 public:
  /// `layout` must outlive this; `rank` of layout.num_ranks().
  WeightDifferences(const FlatLayout& layout, int rank);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// f32, of the whole flat vector.
  Tensor published() const { return published_; }
  /// This rank's parts of all buckets, in order: (share).
  Tensor masters() const { return masters_; }
  /// Makes the masters this rank's part of the published values: when these were filled.
  void take_masters();

  /// Encodes the differences of a bucket, and begins to send them. `group` are the ranks of the
  /// layout.
  comm::Work start(Run& run, comm::Group& group, std::size_t bucket);
  /// Adds a bucket's differences to the published values, once that Work is done. `alone`: not in
  /// the threads of the stream that start() had.
  void apply(std::size_t bucket, bool alone);

  /// What a checkpoint holds of it; values are the masters.
  std::vector<optim::StateTensor> state() const;

 private:
  const FlatLayout& layout_;
  std::size_t rank_;
  PieceCoder coder_;
  Stream* stream_ = nullptr;
  std::vector<std::int64_t> master_at_;  // of each bucket's part
  std::vector<int> code_requests_;
  std::vector<Tensor> sent_;  // codes of each bucket
  int published_request_ = -1, masters_request_ = -1;
  Tensor published_, masters_;
};

/// The name of the vector of published values in a checkpoint.
inline constexpr const char* kPublished = "published";

}  // namespace atl::parallel
