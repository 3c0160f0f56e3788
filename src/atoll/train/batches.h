#pragma once

// The micro-batches that a rank trains on.

#include <cstdint>
#include <memory>

#include "atoll/data/loader.h"
#include "atoll/train/config.h"
#include "atoll/train/corpus.h"
#include "atoll/train/ranks.h"

namespace atl::train {

/// The micro-batches of this rank, in the order of the run. A thread prepares them.
class Batches {
 public:
  /// `config` and `corpus` must outlive this. Throws Error(kUser) for a corpus with too few tokens.
  Batches(const TrainConfig& config, const PreparedCorpus& corpus);

  /// Begins with batch `first` of the run's order, in the share that this rank has now.
  void begin(const Ranks& ranks, std::int64_t first);
  /// Forgets what is prepared: begin() comes next.
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
  std::unique_ptr<data::Loader> loader_;  // null: this rank's share is empty, or nothing has begun
  bool has_begun_ = false;
};

}  // namespace atl::train
