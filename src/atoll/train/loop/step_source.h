#pragma once

// Micro-batches that are made step by step from the model as it is, instead of read from a corpus:
// what reinforcement learning trains on.

#include <filesystem>
#include <functional>

#include "atoll/nn/model.h"
#include "atoll/tensor/batch.h"
#include "atoll/train/corpus/corpus.h"
#include "atoll/train/step/step.h"

namespace atl::train {

struct TrainRun;

/// Makes the micro-batches of a run. Every rank has one, and all ranks make the same calls. Steps
/// are taken with Run::row_stable.
class StepSource {
 public:
  virtual ~StepSource() = default;

  /// What stands for the data of the run: its tokenizer, and a hash that a run which goes on must
  /// find again. The lead calls it first, and the other ranks once it has returned there.
  virtual PreparedCorpus corpus() = 0;
  /// Changes the model that was built, before memory is planned for it.
  virtual void change(nn::Model& model) = 0;
  /// The model has its values: of the checkpoint in `checkpoint`, or of a new run (empty).
  virtual void open(TrainRun& run, const std::filesystem::path& checkpoint) = 0;
  /// What gives this rank's micro-batches of the next step, in order. Throws Error(kUser) for what
  /// cannot be trained on, with nothing lost: the last checkpoint stays.
  virtual std::function<Batch()> begin_step(TrainRun& run) = 0;
  /// The step is done; `result` says whether it was taken.
  virtual void end_step(TrainRun& run, const StepResult& result) = 0;
};

}  // namespace atl::train
