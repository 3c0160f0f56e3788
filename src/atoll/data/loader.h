#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/data/sampler.h"
#include "atoll/data/samples.h"
#include "atoll/data/token_source.h"
#include "atoll/tensor/batch.h"

namespace atl::data {

/// Batch::step_targets of a step in which nothing has a target.
inline constexpr std::int64_t kNoTargets = -1;

/// The targets of all rows of a step, those of other ranks included: Batch::step_targets. Reads
/// masks and documents alone.
std::int64_t count_step_targets(const SampleSource& samples, std::int64_t step,
                                std::int64_t global_batch, RowScratch& scratch);

/// Which samples a Loader gives, and how far ahead it reads.
struct LoaderOptions {
  std::int64_t micro_batch = 1;   ///< sequences in a Batch
  std::int64_t global_batch = 0;  ///< sequences in a step, over all ranks; 0: micro_batch
  /// Which of each step's micro-batches this rank takes, by number within the step, in the order in
  /// which it gets them; empty: all of them.
  std::vector<std::int64_t> micro_batches = {};
  std::int64_t first_step = 0;         ///< where to begin; all that a resumed run needs
  std::int64_t first_micro_batch = 0;  ///< of first_step: so many of this rank's are passed over
  int prefetch = 4;                    ///< micro-batches read ahead
};

/// Gives a rank its micro-batches in order, without end, read ahead by a thread of its own. Where
/// targets may be missing, it counts those of the whole step (Batch::step_targets) from masks and
/// documents alone, so that every rank has the same number without asking the others.
class Loader {
 public:
  /// `samples` must outlive the loader. Throws Error(kUser) when global_batch is not a multiple of
  /// micro_batch, naming the values.
  Loader(const SampleSource& samples, const LoaderOptions& options);
  /// The same for windows over one corpus (Packing::kStream). `source` must outlive the loader and
  /// have the sampler's number of tokens.
  Loader(const TokenSource& source, const Sampler& sampler, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Micro-batches of one step on this rank.
  std::int64_t micro_batches_per_step() const;
  /// The next micro-batch, i32 (micro_batch, context): a view that is valid until the next call.
  /// Waits for the thread; rethrows an error that ended it, after the batches read before it.
  Batch next();
  /// Seconds that all calls of next() have waited: data that came too late.
  double waited_seconds() const;

 private:
  struct State;
  std::unique_ptr<SampleSource> own_samples_;  // of the constructor that is given none
  std::unique_ptr<State> state_;
};

}  // namespace atl::data
