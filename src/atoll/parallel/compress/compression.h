#pragma once

// Data parallel with fewer bytes: docs/compressed-data-parallel.md.

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/run.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// What data-parallel ranks send of a step's gradients.
enum class Compression {
  kNone,         ///< all of them, in f32
  kInt8,         ///< 8 bits an element, in blocks, to whoever sums them
  kInt4,         ///< 4 bits
  kPowerSgd,     ///< of a matrix two factors of low rank
  kOneBitAdam,   ///< nothing; and of Adam's momentum, a bit an element
  kZeroOneAdam,  ///< the same, in some steps only
};

/// As dp.compress has it: "int8"; empty for kNone.
const char* compression_name(Compression compression);

/// How ranks shorten what they send.
struct CompressionOptions {
  Compression gradients = Compression::kNone;
  /// Whether a rank keeps what the bytes did not say and sends it later. Without, to compare with:
  /// it is lost.
  bool feedback = true;
  /// ZeRO 1 and 2: of updated values, the differences to what others hold, in 4 bits.
  bool weight_differences = false;
  int rank = 4;                   ///< of PowerSGD's factors
  std::int64_t warmup = 0;        ///< 1-bit and 0/1 Adam: steps after which the second moment stays
  std::int64_t local_steps = 16;  ///< 0/1 Adam: see ZeroOneSchedule
  std::int64_t last_step = 0;     ///< the same

  /// Whether a reduction is another than the plain one.
  bool reduces() const { return gradients != Compression::kNone && !sends_signs(); }
  /// Whether a OneBitOptimizer stands in the optimizer's place.
  bool sends_signs() const {
    return gradients == Compression::kOneBitAdam || gradients == Compression::kZeroOneAdam;
  }
};

/// The vector of the residual of rank r, as checkpoints name it. Over the flat vector, of gradients
/// or of momentum; each rank has one.
std::string residual_name(int rank);

/// How a bucket's gradients become their sum over ranks, when not by plain reduction. In a step,
/// for every bucket: start, next once its Work is done, end once that one's is. Every rank of the
/// group makes the same calls.
class CompressedReduction {
 public:
  virtual ~CompressedReduction() = default;
  virtual void request(MemoryPlan& plan) = 0;
  virtual void bind(const Arena& arena) = 0;
  /// Encodes what this rank has, in `gradients` (of the whole bucket), which it may overwrite.
  virtual comm::Work start(Run& run, comm::Group& group, std::size_t bucket,
                           const Tensor& gradients) = 0;
  /// Where `mine` is defined it gets the sum of this rank's part; else, or beside that where
  /// `mine` lies in `gradients`, these get all of it by the end.
  virtual comm::Work next(Run& run, comm::Group& group, std::size_t bucket, const Tensor& gradients,
                          const Tensor& mine, bool everybody_needs_it) = 0;
  virtual void end(Run& run, std::size_t bucket, const Tensor& gradients) = 0;
  /// What a checkpoint holds of it.
  virtual std::vector<optim::StateTensor> state() const = 0;
  /// The same, where it is no number for each element: matrices, the same on all ranks.
  virtual std::vector<Tensor> factors() const { return {}; }
};

/// `layout` must outlive it; `rank` of layout.num_ranks(). Null for Compression that does not
/// reduce.
std::unique_ptr<CompressedReduction> make_compressed_reduction(const FlatLayout& layout, int rank,
                                                               const CompressionOptions& options);

}  // namespace atl::parallel
