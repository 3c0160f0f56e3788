#include "atoll/parallel/schedule/pipeline.h"

#include <algorithm>
#include <functional>

#include "atoll/base/check.h"

namespace atl::parallel {

namespace {

// Writes the actions of one chunk's passes.
class ChunkWriter {
 public:
  ChunkWriter(const Pipeline& pipeline, std::size_t chunk, std::vector<Action>& actions)
      : first_(pipeline.bounds[chunk]), end_(pipeline.bounds[chunk + 1]), actions_(actions) {
    before_ = pipeline.rank_before(chunk);
    after_ = pipeline.rank_after(chunk);
  }

  void write(const ChunkPass& pass) {
    using Kind = ChunkPass::Kind;
    micro_batch_ = pass.micro_batch;
    if (pass.kind == Kind::kForward) {
      forward();
    } else {
      backward(pass.kind != Kind::kBackwardWeight, pass.kind != Kind::kBackwardInput);
    }
  }

 private:
  void forward() {
    transfer(ActionKind::kReceiveInput, first_, before_);
    for (std::size_t stage = first_; stage < end_; ++stage) add(ActionKind::kForward, stage);
    transfer(ActionKind::kSendOutput, end_ - 1, after_);
  }
  // The gradient is sent after the W of the first stage rather than before it, so that B and W stay
  // one pass and that stage's parameters are asked for once.
  void backward(bool input, bool weight) {
    if (input) transfer(ActionKind::kReceiveGradient, end_ - 1, after_);
    for (std::size_t stage = end_; stage-- > first_;) {
      if (input) add(ActionKind::kBackwardInput, stage);
      if (weight) add(ActionKind::kBackwardWeight, stage);
    }
    if (input) transfer(ActionKind::kSendGradient, first_, before_);
  }
  void add(ActionKind kind, std::size_t stage, int peer = -1) {
    actions_.push_back({kind, stage, micro_batch_, peer});
  }
  void transfer(ActionKind kind, std::size_t stage, int peer) {
    if (peer >= 0) add(kind, stage, peer);
  }

  std::size_t first_, end_;
  int before_ = -1, after_ = -1;  // the ranks of the chunks beside this one
  std::vector<Action>& actions_;
  std::int64_t micro_batch_ = 0;
};

}  // namespace

int Pipeline::rank_of(std::size_t chunk) const {
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const std::size_t place = chunk % ranks;
  const bool goes_back = folded && chunk / ranks % 2 == 1;
  return static_cast<int>(goes_back ? ranks - 1 - place : place);
}

std::size_t Pipeline::chunk_on(int rank, std::size_t index) const {
  const auto ranks = static_cast<std::size_t>(num_ranks), place = static_cast<std::size_t>(rank);
  const bool goes_back = folded && index % 2 == 1;
  return index * ranks + (goes_back ? ranks - 1 - place : place);
}

int Pipeline::rank_before(std::size_t chunk) const {
  if (chunk == 0 || rank_of(chunk - 1) == rank_of(chunk)) return -1;
  return rank_of(chunk - 1);
}

int Pipeline::rank_after(std::size_t chunk) const {
  if (chunk + 1 == num_chunks() || rank_of(chunk + 1) == rank_of(chunk)) return -1;
  return rank_of(chunk + 1);
}

std::size_t Pipeline::chunk_of(std::size_t stage) const {
  const auto after = std::upper_bound(bounds.begin(), bounds.end(), stage);
  ATOLL_CHECK(after != bounds.begin() && after != bounds.end(), "there is no stage {}", stage);
  return static_cast<std::size_t>(after - bounds.begin()) - 1;
}

std::vector<std::size_t> Pipeline::stages_of(int rank) const {
  std::vector<std::size_t> stages;
  for (std::size_t stage = 0; stage < num_stages(); ++stage) {
    if (rank_of(chunk_of(stage)) == rank) stages.push_back(stage);
  }
  return stages;
}

void Pipeline::check() const {
  ATOLL_CHECK(num_ranks >= 1 && num_micro_batches >= 1 && bounds.size() >= 2 && bounds[0] == 0,
              "{} ranks, {} micro-batches", num_ranks, num_micro_batches);
  ATOLL_CHECK(
      std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) == bounds.end(),
      "a chunk has no stage");
  ATOLL_CHECK(num_chunks() % static_cast<std::size_t>(num_ranks) == 0, "{} chunks on {} ranks",
              num_chunks(), num_ranks);
}

Pipeline whole_model(std::size_t num_stages, std::int64_t num_micro_batches) {
  return {1, num_micro_batches, {0, num_stages}};
}

std::vector<Action> chunk_actions(const Pipeline& pipeline, int rank,
                                  std::span<const ChunkPass> passes) {
  pipeline.check();
  std::vector<Action> actions;
  std::vector<ChunkWriter> writers;
  for (std::size_t c = 0; c < pipeline.num_chunks(); ++c) {
    writers.emplace_back(pipeline, c, actions);
  }
  for (const ChunkPass& pass : passes) {
    ATOLL_CHECK(pass.chunk < pipeline.num_chunks() && pipeline.rank_of(pass.chunk) == rank,
                "chunk {} is not on rank {}", pass.chunk, rank);
    writers[pass.chunk].write(pass);
  }
  return actions;
}

}  // namespace atl::parallel
