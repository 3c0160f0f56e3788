#include "atoll/parallel/value_shards.h"

#include <algorithm>
#include <cstring>

namespace atl::parallel {

namespace {

// A bucket that is needed again so soon is kept: dropping it would mean gathering it at once.
constexpr std::size_t kKeptEvents = 2;

}  // namespace

ValueShards::ValueShards(const FlatLayout& layout, int rank) : layout_(layout), rank_(rank) {
  std::int64_t at = 0;
  for (const Bucket& bucket : layout.buckets()) {
    offsets_.push_back(at);
    at += bucket.part_size(rank);
  }
}

void ValueShards::request(MemoryPlan& plan, const StageClock& clock, bool training) {
  const Dtype dtype = layout_.flat().dtype;
  request_ = plan.request_forever("parameters, this rank's part", "parameters",
                                  Spec{dtype, {layout_.share(rank_)}}.bytes());
  for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
    std::vector<std::size_t> events;
    for (const std::size_t stage : layout_.buckets()[b].stages) {
      events.push_back(clock.event(stage, PassKind::kForward));
      if (training) events.push_back(clock.event(stage, PassKind::kBackward));
    }
    std::sort(events.begin(), events.end());
    const std::size_t first_of_bucket = spans_.size();
    for (const std::size_t event : events) {
      if (spans_.size() > first_of_bucket && event - spans_.back().last_event <= kKeptEvents) {
        spans_.back().last_event = event;
      } else {
        spans_.push_back({.bucket = b, .first_event = event, .last_event = event});
      }
    }
  }
  for (Span& span : spans_) {
    const Bucket& bucket = layout_.buckets()[span.bucket];
    const std::size_t prefetch = span.first_event > 0 ? span.first_event - 1 : 0;
    span.request = plan.request("gathered stage " + std::to_string(bucket.stages.front()),
                                "gathered parameters", Spec{dtype, {bucket.size()}}.bytes(),
                                clock.first_tick(prefetch), clock.last_tick(span.last_event));
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

void ValueShards::put(std::size_t bucket, const Tensor& whole) {
  const Bucket& at = layout_.buckets()[bucket];
  const auto r = static_cast<std::size_t>(rank_);
  const Tensor from = whole.rows(at.parts[r], at.parts[r + 1]);
  if (from.bytes() > 0) std::memcpy(mine(bucket).raw(), from.raw(), from.bytes());
}

void ValueShards::get(std::size_t bucket, const Tensor& whole) const {
  const Bucket& at = layout_.buckets()[bucket];
  const auto r = static_cast<std::size_t>(rank_);
  const Tensor to = whole.rows(at.parts[r], at.parts[r + 1]);
  if (to.bytes() > 0) std::memcpy(to.raw(), mine(bucket).raw(), to.bytes());
}

void ValueShards::begin_pass() {
  for (Span& span : spans_) span.started = span.ready = false;
}

void ValueShards::start(Span& span) {
  get(span.bucket, span.whole);
  span.gather = group_->start_all_gather(span.whole, layout_.buckets()[span.bucket].parts);
  span.started = true;
}

void ValueShards::acquire(std::size_t event, const std::function<void(comm::Work&)>& wait) {
  for (Span& span : spans_) {
    if (span.first_event > event || span.last_event < event || span.ready) continue;
    if (!span.started) start(span);
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
    if (span.first_event == event + 1 && !span.started) start(span);
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
