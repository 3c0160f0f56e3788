#pragma once

// Data parallel with compressed transfers: docs/compressed-data-parallel.md.

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/run.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// How data-parallel ranks send the gradients of a step.
enum class Compression {
  kNone,         ///< uncompressed
  kInt8,         ///< 8 bits an element, in blocks with a scale, to the rank that sums the part
  kInt4,         ///< the same with 4 bits
  kPowerSgd,     ///< two factors of low rank for each matrix
  kOneBitAdam,   ///< after a warm-up, instead of gradients: a bit an element of Adam's momentum
  kZeroOneAdam,  ///< the same, except gradients in a few steps and nothing in local steps
};

/// The name in the setting dp.compress: "int8"; empty for kNone.
const char* compression_name(Compression compression);

/// What data-parallel ranks compress, and how.
struct CompressionOptions {
  Compression gradients = Compression::kNone;
  /// Error feedback: each rank keeps the rounding error of what it sends, its residual, and adds it
  /// to its gradients of the next step. If false, for comparisons, this error is lost.
  bool feedback = true;
  /// ZeRO 1 and 2: ranks send 4-bit differences instead of updated values. See WeightDifferences.
  bool weight_differences = false;
  int rank = 4;                   ///< of PowerSGD's factors
  std::int64_t warmup = 0;        ///< 1-bit and 0/1 Adam: steps before the second moment is fixed
  std::int64_t local_steps = 16;  ///< 0/1 Adam: ZeroOneSchedule::max_local
  std::int64_t last_step = 0;     ///< 0/1 Adam: ZeroOneSchedule::last_step

  /// Whether a CompressedReduction sums the gradients.
  bool reduces() const { return gradients != Compression::kNone && !sends_signs(); }
  /// Whether a OneBitOptimizer replaces the optimizer.
  bool sends_signs() const {
    return gradients == Compression::kOneBitAdam || gradients == Compression::kZeroOneAdam;
  }
};

/// The name in checkpoints of the residual of rank `rank`: a vector over the elements of the flat
/// vector, of gradients or of momenta. Each rank has its own.
std::string residual_name(int rank);

/// Sums the gradients of buckets over ranks, with compressed transfers. In each step, for every
/// bucket, the caller calls start(), waits for its Work, calls next(), waits for its Work, and
/// calls end(). Every rank of the group makes the same calls in the same order.
class CompressedReduction {
 public:
  virtual ~CompressedReduction() = default;
  virtual void request(MemoryPlan& plan) = 0;
  virtual void bind(const Arena& arena) = 0;
  /// Encodes this rank's gradients and begins to send them. `gradients`: of the whole bucket, f32,
  /// flat; may be overwritten. Returns the Work of the transfer.
  virtual comm::Work start(Run& run, comm::Group& group, std::size_t bucket,
                           const Tensor& gradients) = 0;
  /// By the end of end(), `mine` has the sum of this rank's part; with `everybody_needs_it`,
  /// `gradients` has the sum of the whole bucket, and `mine` must be this rank's part of it.
  /// PowerSGD writes only to `gradients`, always the whole sum: there `mine` must always be its
  /// part.
  virtual comm::Work next(Run& run, comm::Group& group, std::size_t bucket, const Tensor& gradients,
                          const Tensor& mine, bool everybody_needs_it) = 0;
  virtual void end(Run& run, std::size_t bucket, const Tensor& gradients) = 0;
  /// This rank's residual, for checkpoints.
  virtual std::vector<optim::StateTensor> state() const = 0;
  /// State for checkpoints without one number for each element: see ParamStore::factors.
  virtual std::vector<Tensor> factors() const { return {}; }
};

/// The reduction that `options` name; null where CompressionOptions::reduces() is false. `layout`
/// must outlive it. `rank`: this rank, less than layout.num_ranks(). Gradients must be f32.
std::unique_ptr<CompressedReduction> make_compressed_reduction(const FlatLayout& layout, int rank,
                                                               const CompressionOptions& options);

}  // namespace atl::parallel
