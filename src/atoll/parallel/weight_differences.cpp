#include "atoll/parallel/weight_differences.h"

#include <algorithm>
#include <array>

#include "atoll/compress/arithmetic.h"
#include "atoll/compress/feedback.h"

namespace atl::parallel {

namespace {

std::span<float> floats(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  return {tensor.data<float>() + begin, static_cast<std::size_t>(count)};
}

}  // namespace

WeightDifferences::WeightDifferences(const FlatLayout& layout, int rank)
    : layout_(layout),
      rank_(static_cast<std::size_t>(rank)),
      codec_(compress::make_codec("int4")),
      codes_(code_pieces(layout, [this](std::int64_t n) { return codec_->max_bytes(n); })) {
  std::int64_t at = 0;
  for (const Bucket& bucket : layout.buckets()) {
    master_at_.push_back(at);
    at += bucket.part_size(rank);
  }
}

void WeightDifferences::request(MemoryPlan& plan) {
  published_request_ = plan.request_forever("parameters", "parameters", layout_.flat().bytes());
  const std::int64_t share = layout_.share(static_cast<int>(rank_));
  masters_request_ = plan.request_forever("masters, this rank's part", "parameters",
                                          Spec{Dtype::kF32, {share}}.bytes());
  for (const BucketCodes& codes : codes_) {
    code_requests_.push_back(plan.request_forever("codes of differences", "codes",
                                                  static_cast<std::size_t>(codes.bytes())));
  }
}

void WeightDifferences::bind(const Arena& arena) {
  published_ = arena.tensor(published_request_, layout_.flat());
  masters_ =
      arena.tensor(masters_request_, {Dtype::kF32, {layout_.share(static_cast<int>(rank_))}});
  for (std::size_t b = 0; b < codes_.size(); ++b) {
    sent_.push_back(arena.tensor(code_requests_[b], {Dtype::kU8, {codes_[b].bytes()}}));
  }
}

void WeightDifferences::take_masters() {
  for (std::size_t b = 0; b < codes_.size(); ++b) {
    const Bucket& bucket = layout_.buckets()[b];
    const std::int64_t size = bucket.part_size(static_cast<int>(rank_));
    const std::int64_t begin = bucket.begin + bucket.parts[rank_];
    const std::span<const float> values = floats(published_, begin, size);
    std::copy(values.begin(), values.end(), floats(masters_, master_at_[b], size).begin());
  }
}

comm::Work WeightDifferences::start(Run& run, comm::Group& group, std::size_t b) {
  const BucketCodes& codes = codes_[b];
  const std::size_t first = codes.first_of_parts[rank_];
  const auto count = static_cast<std::int64_t>(codes.first_of_parts[rank_ + 1] - first);
  const std::int64_t begin = layout_.buckets()[b].begin + layout_.buckets()[b].parts[rank_];
  run.threads().run(count, [&](std::int64_t i) {
    const CodePiece& piece = codes.pieces[first + static_cast<std::size_t>(i)];
    std::array<float, kBlockElements> difference;
    const std::span<float> wanted =
        std::span(difference).first(static_cast<std::size_t>(piece.count));
    const std::span<const float> master =
        floats(masters_, master_at_[b] + piece.begin - begin, piece.count);
    std::copy(master.begin(), master.end(), wanted.begin());
    compress::subtract(floats(published_, piece.begin, piece.count), wanted);
    compress::encode_owed(
        *codec_, wanted, {},
        {static_cast<std::byte*>(sent_[b].raw()) + piece.byte, codec_->max_bytes(piece.count)});
  });
  return group.start_all_gather(sent_[b], codes.byte_parts);
}

void WeightDifferences::apply(ThreadPool* threads, std::size_t b) {
  const std::vector<CodePiece>& pieces = codes_[b].pieces;
  const auto apply_one = [&](std::int64_t i) {
    const CodePiece& piece = pieces[static_cast<std::size_t>(i)];
    compress::decode_owed(*codec_,
                          {static_cast<const std::byte*>(sent_[b].raw()) + piece.byte,
                           codec_->max_bytes(piece.count)},
                          /*adds=*/true, floats(published_, piece.begin, piece.count));
  };
  if (threads != nullptr) return threads->run(std::ssize(pieces), apply_one);
  for (std::int64_t i = 0; i < std::ssize(pieces); ++i) apply_one(i);
}

std::vector<optim::StateTensor> WeightDifferences::state() const {
  return {{kPublished, 0, published_}};
}

}  // namespace atl::parallel
