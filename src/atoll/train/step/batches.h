#pragma once

// The micro-batches that a rank trains on.

#include <cstdint>
#include <memory>

#include "atoll/data/loader.h"
#include "atoll/train/config/config.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/ranks/ranks.h"

namespace atl::train {

/// The micro-batches of this rank, in the order of the run. A thread prepares them.
class Batches {
 public:
  /// `config` and `corpus` must outlive this. Throws Error(kUser) for a corpus with too few tokens.
  Batches(const TrainConfig& config, const PreparedCorpus& corpus);

  /// Begins with batch `first` of the run's order, with this rank's part of the plan of `ranks`.
  void begin(const Ranks& ranks, std::int64_t first);
  /// Drops the prepared micro-batches: call begin() before next().
  void stop();
  bool has_begun() const { return has_begun_; }
  /// The next micro-batch, valid until the next call.
  Batch next() { return loader_->next(); }
  /// Seconds that next() has waited since begin().
  double waited_seconds() const { return loader_ ? loader_->waited_seconds() : 0; }

  const data::SampleSource& samples() const { return samples_.get(); }

 private:
  const TrainConfig& config_;
  TrainSamples samples_;
  std::unique_ptr<data::Loader> loader_;  // null: no micro-batches here, or begin() was not called
  bool has_begun_ = false;
};

}  // namespace atl::train
