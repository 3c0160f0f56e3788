// Sums of gradients that travel in 4 or 8 bits, as LoCo (Xie et al. 2024) and SDP4Bit (Jia et al.
// 2024) have them: each rank encodes its gradients by blocks, and what it owes with them; every
// rank gets the codes of its part from all others, and sums in f32 in the order of ranks.

#include "atoll/compress/feedback.h"
#include "atoll/parallel/code_pieces.h"
#include "atoll/parallel/reductions.h"

namespace atl::parallel {

namespace {

std::span<std::byte> bytes_at(const Tensor& tensor, std::int64_t begin, std::size_t count) {
  return {static_cast<std::byte*>(tensor.raw()) + begin, count};
}

class QuantizedReduction final : public CompressedReduction {
 public:
  QuantizedReduction(const FlatLayout& layout, int rank, const CompressionOptions& options)
      : layout_(layout),
        rank_(rank),
        feedback_(options.feedback),
        codec_(compress::make_codec(options.gradients == Compression::kInt8 ? "int8" : "int4")),
        codes_(code_pieces(layout, [this](std::int64_t n) { return codec_->max_bytes(n); })) {
    for (const BucketCodes& codes : codes_) {
      std::vector<std::int64_t>& parts = received_parts_.emplace_back();
      for (int r = 0; r <= layout.num_ranks(); ++r) parts.push_back(r * codes.part_bytes(rank));
    }
  }

  void request(MemoryPlan& plan) override {
    if (feedback_) {
      owed_request_ =
          plan.request_forever("owed gradients", "owed", Spec{Dtype::kF32, {elements()}}.bytes());
    }
    for (std::size_t b = 0; b < codes_.size(); ++b) {
      const auto bytes = static_cast<std::size_t>(codes_[b].bytes() + received_parts_[b].back());
      requests_.push_back(plan.request_forever("codes of gradients", "codes", bytes));
    }
  }

  void bind(const Arena& arena) override {
    if (feedback_) owed_ = arena.tensor(owed_request_, {Dtype::kF32, {elements()}});
    for (std::size_t b = 0; b < codes_.size(); ++b) {
      const std::int64_t sent = codes_[b].bytes();
      const std::int64_t received = received_parts_[b].back();
      const Tensor both = arena.tensor(requests_[b], {Dtype::kU8, {sent + received}});
      sent_.push_back(both.rows(0, sent));
      received_.push_back(both.rows(sent, sent + received));
    }
  }

  comm::Work start(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients) override {
    const std::int64_t first = layout_.buckets()[b].begin;
    const std::vector<CodePiece>& pieces = codes_[b].pieces;
    float* owed = feedback_ ? owed_.data<float>() : nullptr;
    run.threads().run(std::ssize(pieces), [&](std::int64_t i) {
      const CodePiece& piece = pieces[static_cast<std::size_t>(i)];
      const auto count = static_cast<std::size_t>(piece.count);
      const std::span<const float> x = {gradients.data<float>() + piece.begin - first, count};
      const std::span<float> rest =
          owed == nullptr ? std::span<float>() : std::span(owed + piece.begin, count);
      compress::encode_owed(*codec_, x, rest,
                            bytes_at(sent_[b], piece.byte, codec_->max_bytes(piece.count)));
    });
    return group.start_all_to_all(sent_[b], codes_[b].byte_parts, received_[b], received_parts_[b]);
  }

  comm::Work next(Run& run, comm::Group& group, std::size_t b, const Tensor& gradients,
                  const Tensor& mine, bool everybody_needs_it) override {
    const BucketCodes& codes = codes_[b];
    const Bucket& bucket = layout_.buckets()[b];
    const auto r = static_cast<std::size_t>(rank_);
    const std::size_t first_piece = codes.first_of_parts[r];
    const auto count = static_cast<std::int64_t>(codes.first_of_parts[r + 1] - first_piece);
    const std::int64_t first = bucket.begin + bucket.parts[r];
    run.threads().run(count, [&](std::int64_t i) {
      const CodePiece& piece = codes.pieces[first_piece + static_cast<std::size_t>(i)];
      const std::span<float> sum = {mine.data<float>() + piece.begin - first,
                                    static_cast<std::size_t>(piece.count)};
      for (int from = 0; from < group.size(); ++from) {
        const std::int64_t at =
            received_parts_[b][static_cast<std::size_t>(from)] + piece.byte - codes.byte_parts[r];
        compress::decode_owed(*codec_, bytes_at(received_[b], at, codec_->max_bytes(piece.count)),
                              /*adds=*/from > 0, sum);
      }
    });
    return everybody_needs_it ? group.start_all_gather(gradients, bucket.parts) : comm::Work();
  }

  void end(Run& /*run*/, std::size_t /*bucket*/, const Tensor& /*gradients*/) override {}

  std::vector<optim::StateTensor> state() const override {
    if (!feedback_) return {};
    return {{owed_name(rank_), 0, owed_}};
  }

 private:
  std::int64_t elements() const { return layout_.flat().shape.num_elements(); }

  const FlatLayout& layout_;
  int rank_;
  bool feedback_;
  std::unique_ptr<compress::Codec> codec_;
  std::vector<BucketCodes> codes_;
  std::vector<std::vector<std::int64_t>> received_parts_;
  int owed_request_ = -1;
  std::vector<int> requests_;
  Tensor owed_;
  std::vector<Tensor> sent_, received_;
};

}  // namespace

std::unique_ptr<CompressedReduction> make_quantized_reduction(const FlatLayout& layout, int rank,
                                                              const CompressionOptions& options) {
  return std::make_unique<QuantizedReduction>(layout, rank, options);
}

}  // namespace atl::parallel
