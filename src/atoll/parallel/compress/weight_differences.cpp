#include "atoll/parallel/compress/weight_differences.h"

#include "atoll/tensor/host_access.h"

namespace atl::parallel {

WeightDifferences::WeightDifferences(const FlatLayout& layout, int rank)
    : layout_(layout), rank_(static_cast<std::size_t>(rank)), coder_(layout, "int4") {
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
  coder_.request(plan);
  for (const BucketCodes& codes : coder_.buckets()) {
    code_requests_.push_back(plan.request_forever("codes of differences", "codes",
                                                  static_cast<std::size_t>(codes.bytes())));
  }
}

void WeightDifferences::bind(const Arena& arena) {
  published_ = arena.tensor(published_request_, layout_.flat());
  masters_ =
      arena.tensor(masters_request_, {Dtype::kF32, {layout_.share(static_cast<int>(rank_))}});
  coder_.bind(arena);
  for (std::size_t b = 0; b < code_requests_.size(); ++b) {
    sent_.push_back(arena.tensor(code_requests_[b], {Dtype::kU8, {coder_.buckets()[b].bytes()}}));
  }
}

void WeightDifferences::take_masters() {
  for (std::size_t b = 0; b < master_at_.size(); ++b) {
    const Bucket& bucket = layout_.buckets()[b];
    const std::int64_t size = bucket.part_size(static_cast<int>(rank_));
    if (size == 0) continue;
    const std::int64_t begin = bucket.begin + bucket.parts[rank_];
    copy_now(published_.rows(begin, begin + size),
             masters_.rows(master_at_[b], master_at_[b] + size));
  }
}

comm::Work WeightDifferences::start(Run& run, comm::Group& group, std::size_t b) {
  stream_ = run.stream;
  const std::int64_t begin = layout_.buckets()[b].begin + layout_.buckets()[b].parts[rank_];
  coder_.encode(run, coder_.part(b, rank_),
                {.x = masters_, .x_first = begin - master_at_[b], .minus = published_}, sent_[b]);
  return group.start_all_gather(sent_[b], coder_.buckets()[b].byte_parts);
}

void WeightDifferences::apply(std::size_t b, bool alone) {
  Run run = {.stream = stream_};
  coder_.decode(run, coder_.all(b),
                {.codes = sent_[b], .adds = true, .to = published_, .alone = alone});
}

std::vector<optim::StateTensor> WeightDifferences::state() const {
  return {{kPublished, 0, published_}};
}

}  // namespace atl::parallel
