#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/parallel/schedule/schedules.h"

namespace atl::parallel {

namespace {

// Writes the order of one rank's passes. It is made for at least 2 p - 1 micro-batches; with fewer,
// the passes of those that are not there are left out, which keeps the order of the others.
class VOrder {
 public:
  VOrder(const Pipeline& pipeline, int rank)
      : down_{pipeline.chunk_on(rank, 0)},
        up_{pipeline.chunk_on(rank, 1)},
        count_(pipeline.num_micro_batches),
        padded_(std::max<std::int64_t>(count_, 2 * pipeline.num_ranks - 1)) {}

  std::vector<ChunkPass> write(std::int64_t ranks, std::int64_t rank) {
    fill(ranks, rank);
    while (up_.forward < down_.forward || down_.forward < padded_) {
      if (down_.forward < padded_) forward(down_);
      backward(down_);
      forward(up_);
      backward(up_);
    }
    drain(ranks, rank);
    return std::move(passes_);
  }

 private:
  struct Chunk {
    std::size_t chunk = 0;
    std::int64_t forward = 0, input = 0, weight = 0;  // the next micro-batch of each pass
  };

  // Until the rank holds as much as it may: the last chunk of the first micro-batch has come.
  void fill(std::int64_t ranks, std::int64_t rank) {
    for (std::int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(down_);
    for (std::int64_t i = 0; i < rank; ++i) {
      forward(up_);
      forward(down_);
    }
    for (std::int64_t i = 0; i < ranks - rank; ++i) {
      forward(up_);
      backward(up_);
    }
  }
  // Weight passes wait for the end, where there is nothing else to do.
  void drain(std::int64_t ranks, std::int64_t rank) {
    for (std::int64_t i = 0; i < rank; ++i) {
      input(down_);
      input(up_);
    }
    for (std::int64_t i = 0; i < ranks - rank; ++i) {
      input(down_);
      weight(down_);
    }
    while (up_.weight < up_.input) weight(up_);
    while (down_.weight < down_.input) weight(down_);
  }
  void forward(Chunk& at) { add(ChunkPass::Kind::kForward, at, at.forward); }
  void input(Chunk& at) { add(ChunkPass::Kind::kBackwardInput, at, at.input); }
  void weight(Chunk& at) { add(ChunkPass::Kind::kBackwardWeight, at, at.weight); }
  void backward(Chunk& at) {
    input(at);
    weight(at);
  }
  void add(ChunkPass::Kind kind, const Chunk& at, std::int64_t& next) {
    if (next < count_) passes_.push_back({kind, at.chunk, next});
    ++next;
  }

  Chunk down_, up_;
  std::int64_t count_, padded_;
  std::vector<ChunkPass> passes_;
};

}  // namespace

std::vector<Action> schedule_zb_v(const Pipeline& pipeline, int rank) {
  ATOLL_CHECK(pipeline.folded && pipeline.chunks_per_rank() == 2,
              "a V has two chunks a rank, the second row on the way back");
  return chunk_actions(pipeline, rank, VOrder(pipeline, rank).write(pipeline.num_ranks, rank));
}

}  // namespace atl::parallel
