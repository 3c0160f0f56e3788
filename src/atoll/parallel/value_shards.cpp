#include "atoll/parallel/value_shards.h"

#include <algorithm>

#include "atoll/ops/elementwise.h"

namespace atl::parallel {

namespace {

// A bucket that is needed again so soon is kept: dropping it would mean gathering it at once.
constexpr std::size_t kKeptPasses = 2;

}  // namespace

ValueShards::ValueShards(const FlatLayout& layout, int rank) : layout_(layout), rank_(rank) {
  std::int64_t at = 0;
  for (const Bucket& bucket : layout.buckets()) {
    offsets_.push_back(at);
    at += bucket.part_size(rank);
  }
}

void ValueShards::request(MemoryPlan& plan, const Schedule& schedule) {
  const Dtype dtype = layout_.flat().dtype;
  request_ = plan.request_forever("parameters, this rank's part", "parameters",
                                  Spec{dtype, {layout_.share(rank_)}}.bytes());
  for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
    const std::vector<std::size_t>& stages = layout_.buckets()[b].stages;
    const std::size_t first_of_bucket = spans_.size();
    for (const StagePass& pass : schedule.passes()) {
      if (!std::binary_search(stages.begin(), stages.end(), pass.stage)) continue;
      if (spans_.size() > first_of_bucket && pass.number - spans_.back().last_pass <= kKeptPasses) {
        spans_.back().last_pass = pass.number;
      } else {
        spans_.push_back({.bucket = b, .first_pass = pass.number, .last_pass = pass.number});
      }
    }
  }
  for (Span& span : spans_) {
    const Bucket& bucket = layout_.buckets()[span.bucket];
    const std::size_t prefetch = span.first_pass > 0 ? span.first_pass - 1 : 0;
    span.request = plan.request("gathered stage " + std::to_string(bucket.stages.front()),
                                "gathered parameters", Spec{dtype, {bucket.size()}}.bytes(),
                                schedule.passes()[prefetch].first_tick,
                                schedule.passes()[span.last_pass].last_tick);
  }
}

void ValueShards::bind(const Arena& arena) {
  const Dtype dtype = layout_.flat().dtype;
  values_ = arena.tensor(request_, {dtype, {layout_.share(rank_)}});
  for (Span& span : spans_) {
    span.whole = arena.tensor(span.request, {dtype, {layout_.buckets()[span.bucket].size()}});
  }
}

Tensor ValueShards::mine(std::size_t bucket) const {
  const std::int64_t size = layout_.buckets()[bucket].part_size(rank_);
  return values_.rows(offsets_[bucket], offsets_[bucket] + size);
}

void ValueShards::get(Run& run, std::size_t bucket, const Tensor& whole) const {
  const Bucket& at = layout_.buckets()[bucket];
  const auto r = static_cast<std::size_t>(rank_);
  const Tensor to = whole.rows(at.parts[r], at.parts[r + 1]);
  if (to.bytes() > 0) ops::copy(run, mine(bucket), to);
}

void ValueShards::begin_walk(comm::Group& group) {
  group_ = &group;
  for (Span& span : spans_) span.started = span.ready = false;
}

void ValueShards::start(Run& run, Span& span) {
  get(run, span.bucket, span.whole);
  span.gather = group_->start_all_gather(span.whole, layout_.buckets()[span.bucket].parts);
  span.started = true;
}

void ValueShards::acquire(Run& run, std::size_t pass,
                          const std::function<void(comm::Work&)>& wait) {
  for (Span& span : spans_) {
    if (span.first_pass > pass || span.last_pass < pass || span.ready) continue;
    if (!span.started) start(run, span);
    wait(span.gather);
    span.ready = true;
    const Bucket& bucket = layout_.buckets()[span.bucket];
    for (std::size_t i = bucket.first_param; i < bucket.end_param; ++i) {
      nn::Param& param = *layout_.params()[i];
      const std::int64_t at = layout_.offset(i) - bucket.begin;
      param.value =
          span.whole.rows(at, at + param.spec.shape.num_elements()).reshaped(param.spec.shape);
    }
  }
  for (Span& span : spans_) {
    if (span.first_pass == pass + 1 && !span.started) start(run, span);
  }
}

void ValueShards::abandon() noexcept {
  for (Span& span : spans_) {
    try {
      if (span.started && !span.ready) span.gather.wait();
    } catch (...) {  // the step has failed already, and says so
    }
    span.started = span.ready = false;
  }
}

}  // namespace atl::parallel
