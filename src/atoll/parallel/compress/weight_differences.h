#pragma once

#include <vector>

#include "atoll/parallel/compress/compression.h"
#include "atoll/parallel/compress/piece_coder.h"

namespace atl::parallel {

/// Sends updated values as 4-bit differences (SDP4Bit, Jia et al. 2024). Each rank updates masters,
/// the exact values of its part. Passes read the published values, which have the same bits on all
/// ranks. In each step every rank encodes the difference of its masters to the published values,
/// and all ranks add the decoded differences to the published values. The rounding error of a
/// difference is part of the next difference. So published values follow the masters, and errors do
/// not add up.
class WeightDifferences {
 public:
  /// `layout` must outlive this. `rank`: this rank, less than layout.num_ranks().
  WeightDifferences(const FlatLayout& layout, int rank);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);

  /// The published values: f32, the whole flat vector.
  Tensor published() const { return published_; }
  /// The masters: f32, this rank's parts of all buckets in order, of shape (share).
  Tensor masters() const { return masters_; }
  /// Copies this rank's part of the published values to the masters. To be called after the
  /// published values were filled.
  void take_masters();

  /// Encodes the differences of this rank's part of a bucket, and begins to gather those of all
  /// ranks. `group`: the ranks of the layout.
  comm::Work start(Run& run, comm::Group& group, std::size_t bucket);
  /// To be called when the Work of start() is done: adds the differences of a bucket to the
  /// published values. `alone`: on this thread, without the threads of the stream that start() was
  /// given.
  void apply(std::size_t bucket, bool alone);

  /// The published values, for checkpoints, which hold the masters as the values of the model.
  std::vector<optim::StateTensor> state() const;

 private:
  const FlatLayout& layout_;
  std::size_t rank_;
  PieceCoder coder_;
  Stream* stream_ = nullptr;
  std::vector<std::int64_t> master_at_;  // by bucket: where its part begins in masters_
  std::vector<int> code_requests_;
  std::vector<Tensor> sent_;  // by bucket: the codes of all ranks
  int published_request_ = -1, masters_request_ = -1;
  Tensor published_, masters_;
};

/// The name of the vector of published values in a checkpoint.
inline constexpr const char* kPublished = "published";

}  // namespace atl::parallel
