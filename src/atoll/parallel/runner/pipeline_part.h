#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/nn/model.h"
#include "atoll/parallel/schedule/pipeline.h"
#include "atoll/parallel/schedule/rank_schedule.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// How ranks share a model's stages.
struct PipelineOptions {
  int num_ranks = 1;
  int rank = 0;  ///< this one among them
  std::string schedule = "1f1b";
  int chunks = 0;                  ///< of the model on each rank; 0: as few as the schedule takes
  std::int64_t micro_batches = 1;  ///< of a step, through all ranks
};

/// One rank's part in a pipeline: which stages it has, what it does when, and what the ranks must
/// put together after a step.
///
/// Tied embeddings that lie on two ranks have a parameter on both. Each adds up its own gradient
/// over the micro-batches; then both get (embedding's) + (head's), in that order, so both make the
/// same update. One rank adds the terms of both in the order of its passes: the same terms in
/// another order, so that an element differs by at most 2 (n - 1) eps times the sum of their
/// magnitudes, n the number of terms (a term for each position of the step whose target or token it
/// is, and for each position's softmax). All else has the bits of one rank, and so does this where
/// a V brings both ends to the first rank, but for the order of passes in that schedule.
class PipelinePart {
 public:
  /// Cuts `model`, which is whole and has no memory yet, by the cost of its stages at `context`
  /// tokens a sequence. Throws Error(kUser) when the schedule does not fit: see check_schedule.
  PipelinePart(nn::Model& model, const PipelineOptions& options, std::int64_t context);

  const PipelineOptions& options() const { return options_; }
  const Pipeline& pipeline() const { return pipeline_; }
  RankSchedule schedule() const { return rank_schedule(pipeline_, lists_, options_.rank); }
  /// The share of all ranks' time in which they are idle, by FLOPs.
  double bubble() const { return bubble_; }
  /// Who has the losses.
  int head_rank() const { return pipeline_.rank_of(pipeline_.num_chunks() - 1); }
  /// Whether the first rank and the last both train the embedding.
  bool is_tied() const { return is_tied_; }
  /// Whether this rank is the one that a parameter, or what it is a part of, counts for: it is
  /// written, and its gradient is in the norm, once.
  bool counts(const nn::Param& param) const;

  /// `store` has this rank's stages: its reduce() will sum the gradients of tied embeddings over
  /// the ends of the pipeline. Before ParamStore::request.
  void attach(ParamStore& store);
  /// The ranks of the pipeline, and of them the first and the last where is_tied() and this is one
  /// of these; else null. Before the first step; both must outlive this.
  void connect(comm::Group& group, comm::Group* ends);
  comm::Group& group() const { return *group_; }

  /// The norm of the gradient of all ranks, with the bits of ranks that have all stages and the
  /// same gradient. Every rank must call it, after ParamStore::reduce.
  double grad_norm(Run& run, ParamStore& store);

 private:
  void sum_tied();
  void count_blocks(const FlatLayout& layout);

  PipelineOptions options_;
  Pipeline pipeline_;
  std::vector<std::vector<Action>> lists_;
  double bubble_ = 0;
  bool is_tied_ = false;
  nn::Param* tied_ = nullptr;  // on the first rank and the last
  comm::Group* group_ = nullptr;
  comm::Group* ends_ = nullptr;
  // Of each block of this rank's gradient, in order, Param::number; -1: another rank counts it.
  std::vector<std::int64_t> params_;
  std::vector<std::int64_t> parts_;  // two numbers for each block of each rank; empty: not asked
};

}  // namespace atl::parallel
