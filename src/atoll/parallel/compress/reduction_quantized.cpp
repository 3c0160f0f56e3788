// Sums gradients that ranks send in 4 or 8 bits an element (LoCo, Xie et al. 2024; SDP4Bit, Jia et
// al. 2024). Each rank adds its residual to its gradients and encodes the sum by blocks. An
// all-to-all brings each rank the codes of its part from all ranks; the rank decodes them and sums
// in f32, in the order of ranks.

#include "atoll/parallel/compress/piece_coder.h"
#include "atoll/parallel/compress/reductions.h"

namespace atl::parallel {

namespace {

class QuantizedReduction final : public CompressedReduction {
 public:
  QuantizedReduction(const FlatLayout& layout, int rank, const CompressionOptions& options)
      : layout_(layout),
        rank_(rank),
        feedback_(options.feedback),
        coder_(layout, compression_name(options.gradients)) {
    for (const BucketCodes& codes : coder_.buckets()) {
      std::vector<std::int64_t>& parts = received_parts_.emplace_back();
      for (int r = 0; r <= layout.num_ranks(); ++r) parts.push_back(r * codes.part_bytes(rank));
    }
  }

  void request(MemoryPlan& plan) override {
    if (feedback_) {
      residual_request_ = plan.request_forever("residual of gradients", "residual",
                                               Spec{Dtype::kF32, {elements()}}.bytes());
    }
    coder_.request(plan);
    for (std::size_t b = 0; b < received_parts_.size(); ++b) {
      const std::int64_t bytes = coder_.buckets()[b].bytes() + received_parts_[b].back();
      requests_.push_back(
          plan.request_forever("codes of gradients", "codes", static_cast<std::size_t>(bytes)));
    }
  }

  void bind(const Arena& arena) override {
    if (feedback_) residual_ = arena.tensor(residual_request_, {Dtype::kF32, {elements()}});
    coder_.bind(arena);
    for (std::size_t b = 0; b < received_parts_.size(); ++b) {
      const std::int64_t sent = coder_.buckets()[b].bytes();
      const std::int64_t received = received_parts_[b].back();
      const Tensor both = arena.tensor(requests_[b], {Dtype::kU8, {sent + received}});
      sent_.push_back(both.rows(0, sent));
      received_.push_back(both.rows(sent, sent + received));
    }
  }

  comm::Work start(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients) override {
    coder_.encode(run, coder_.all(b),
                  {.x = gradients, .x_first = layout_.buckets()[b].begin, .residual = residual_},
                  sent_[b]);
    return group.start_all_to_all(sent_[b], coder_.buckets()[b].byte_parts, received_[b],
                                  received_parts_[b]);
  }

  comm::Work next(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients,
                  const Tensor& mine, bool everybody_needs_it) override {
    const Bucket& bucket = layout_.buckets()[b];
    const auto r = static_cast<std::size_t>(rank_);
    coder_.decode(run, coder_.part(b, r),
                  {.codes = received_[b],
                   .byte_first = coder_.buckets()[b].byte_parts[r],
                   .sources = group.size(),
                   .source_bytes = coder_.buckets()[b].part_bytes(rank_),
                   .to = mine,
                   .to_first = bucket.begin + bucket.parts[r]});
    return everybody_needs_it ? group.start_all_gather(gradients, bucket.parts) : comm::Work();
  }

  void end(Run& /*run*/, std::size_t /*bucket*/, const Tensor& /*gradients*/) override {}

  std::vector<optim::StateTensor> state() const override {
    if (!feedback_) return {};
    return {{residual_name(rank_), 0, residual_}};
  }

 private:
  std::int64_t elements() const { return layout_.flat().shape.num_elements(); }

  const FlatLayout& layout_;
  int rank_;
  bool feedback_;
  PieceCoder coder_;
  std::vector<std::vector<std::int64_t>> received_parts_;
  int residual_request_ = -1;
  std::vector<int> requests_;
  Tensor residual_;
  std::vector<Tensor> sent_, received_;
};

}  // namespace

std::unique_ptr<CompressedReduction> make_quantized_reduction(const FlatLayout& layout, int rank,
                                                              const CompressionOptions& options) {
  return std::make_unique<QuantizedReduction>(layout, rank, options);
}

}  // namespace atl::parallel
