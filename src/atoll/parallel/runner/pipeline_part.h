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

/// How the ranks of a pipeline share a model's stages.
struct PipelineOptions {
  int num_ranks = 1;
  int rank = 0;  ///< this rank in the pipeline
  std::string schedule = "1f1b";
  int chunks = 0;                  ///< of the model on each rank; 0: the schedule's minimum
  std::int64_t micro_batches = 1;  ///< of a step; each passes through all ranks
};

/// One rank's part in a pipeline: its stages, its list of actions, and the sums over ranks that a
/// step needs.
///
/// Tied embeddings: where the embedding and the head lie on two ranks, both ranks have the
/// parameter. Each adds up its own gradient over the micro-batches; then both compute the sum of
/// the embedding's gradient and the head's, in that order, and make the same update. A run without
/// a pipeline adds the same terms in the order of its passes. So an element of the gradient differs
/// by at most 2 (n - 1) eps times the sum of the terms' magnitudes, for n terms: one for each
/// position of the step with this row's token as input or target, and one for each position's
/// softmax. All other gradients have the bits of a run without a pipeline. A folded schedule has
/// both ends on the first rank; there only the order of its passes makes tied embeddings differ.
class PipelinePart {
 public:
  /// Cuts `model`, which is whole and has no memory yet, to the stages of this rank, so that chunks
  /// cost about the same at `context` tokens a sequence. Throws Error(kUser) when the schedule does
  /// not fit: see check_schedule.
  PipelinePart(nn::Model& model, const PipelineOptions& options, std::int64_t context);

  const PipelineOptions& options() const { return options_; }
  const Pipeline& pipeline() const { return pipeline_; }
  RankSchedule schedule() const { return rank_schedule(pipeline_, lists_, options_.rank); }
  /// The fraction of all ranks' time in which they are idle, computed from the FLOPs of stages.
  double bubble() const { return bubble_; }
  /// The rank that has the head, and so the losses.
  int head_rank() const { return pipeline_.rank_of(pipeline_.num_chunks() - 1); }
  /// Whether the first and the last rank both have, and train, the tied embedding.
  bool is_tied() const { return is_tied_; }
  /// Whether this rank is the one that writes its parameter `param` to checkpoints and counts its
  /// gradient in the norm. Of a tied embedding on two ranks only the first rank does.
  bool counts(const nn::Param& param) const;

  /// Makes reduce() of `store`, which has this rank's stages, also sum the gradients of tied
  /// embeddings over the ends of the pipeline. To be called before ParamStore::request.
  void attach(ParamStore& store);
  /// `group`: the ranks of the pipeline. `ends`: its first and its last rank, where is_tied() and
  /// this rank is one of the two; else null. To be called before the first step; both must outlive
  /// this.
  void connect(comm::Group& group, comm::Group* ends);
  comm::Group& group() const { return *group_; }

  /// The norm of the gradient of the whole model: for the same gradient, the bits that a rank with
  /// all stages gets. Every rank must call it, after ParamStore::reduce.
  double grad_norm(Run& run, ParamStore& store);

 private:
  void sum_tied();
  void count_blocks(const FlatLayout& layout);

  PipelineOptions options_;
  Pipeline pipeline_;
  std::vector<std::vector<Action>> lists_;
  double bubble_ = 0;
  bool is_tied_ = false;
  nn::Param* tied_ = nullptr;  // null except on the two ends of a tied model
  comm::Group* group_ = nullptr;
  comm::Group* ends_ = nullptr;
  // For each block of this rank's gradient, in order: Param::number, or -1 where another rank
  // counts the block.
  std::vector<std::int64_t> params_;
  std::vector<std::int64_t> parts_;  // of the gathered pairs, by rank; empty: not counted yet
};

}  // namespace atl::parallel
