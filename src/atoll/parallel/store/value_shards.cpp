#include "atoll/parallel/store/value_shards.h"

#include <algorithm>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/tensor/paged_memory.h"

namespace atl::parallel {

namespace {

// A bucket that is needed again within so many passes stays gathered: if it were dropped, it would
// have to be gathered again at once.
constexpr std::size_t kKeptPasses = 2;

}  // namespace

ValueShards::ValueShards(const FlatLayout& layout, int rank, bool in_file)
    : layout_(layout), rank_(rank), in_file_(in_file) {
  std::int64_t at = 0;
  for (const Bucket& bucket : layout.buckets()) {
    offsets_.push_back(at);
    at += bucket.part_size(rank);
  }
}

void ValueShards::request(MemoryPlan& plan, const Schedule& schedule) {
  const Dtype dtype = layout_.flat().dtype;
  if (!in_file_) request_values(plan);
  for (const StagePass& pass : schedule.passes()) {
    is_forward_.push_back(pass.kind == PassKind::kForward);
  }
  for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
    const std::vector<std::size_t>& stages = layout_.buckets()[b].stages;
    const std::size_t first_of_bucket = spans_.size();
    for (const StagePass& pass : schedule.passes()) {
      if (!std::binary_search(stages.begin(), stages.end(), pass.stage)) continue;
      if (spans_.size() > first_of_bucket && pass.number - spans_.back().last_pass <= kKeptPasses) {
        spans_.back().last_pass = pass.number;
      } else {
        Span& span = spans_.emplace_back();
        span.bucket = b;
        span.first_pass = span.last_pass = pass.number;
      }
    }
  }
  for (Span& span : spans_) {
    const Bucket& bucket = layout_.buckets()[span.bucket];
    // Two pages more: this rank's part must have the same offset within a page as in the file.
    const std::size_t bytes = Spec{dtype, {bucket.size()}}.bytes() + (in_file_ ? 2 * kFilePage : 0);
    span.request =
        plan.request("gathered stage " + std::to_string(bucket.stages.front()),
                     "gathered parameters", bytes, schedule.passes()[first_needed(span)].first_tick,
                     schedule.passes()[span.last_pass].last_tick);
  }
}

std::size_t ValueShards::first_needed(const Span& span) const {
  const std::size_t ahead = in_file_ ? 2 : 1;
  return span.first_pass > ahead ? span.first_pass - ahead : 0;
}

void ValueShards::request_values(MemoryPlan& plan) {
  request_ = plan.request_forever("parameters, this rank's part", "parameters",
                                  Spec{layout_.flat().dtype, {layout_.share(rank_)}}.bytes());
}

void ValueShards::request_file(MemoryPlan& file) {
  request_values(file);
}

void ValueShards::bind_file(FileArena& file) {
  file_ = &file;
  values_ = file.arena().tensor(request_, {layout_.flat().dtype, {layout_.share(rank_)}});
}

void ValueShards::bind(const Arena& arena) {
  const Dtype dtype = layout_.flat().dtype;
  if (!in_file_) values_ = arena.tensor(request_, {dtype, {layout_.share(rank_)}});
  for (Span& span : spans_) {
    const Bucket& bucket = layout_.buckets()[span.bucket];
    const Spec whole = {dtype, {bucket.size()}};
    if (in_file_) {
      const std::int64_t part = bucket.parts[static_cast<std::size_t>(rank_)];
      const auto bytes = static_cast<std::int64_t>(whole.bytes() + 2 * kFilePage);
      span.whole = around(*file_, mine(span.bucket), whole, part,
                          from_first_page(arena.tensor(span.request, {Dtype::kU8, {bytes}})));
    } else {
      span.whole = arena.tensor(span.request, whole);
    }
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
  for (Span& span : spans_) {
    finish(span.read);
    span.reads = span.started = span.ready = false;
  }
}

void ValueShards::start_read(Span& span) {
  const Bucket& bucket = layout_.buckets()[span.bucket];
  const auto r = static_cast<std::size_t>(rank_);
  span.reads = true;
  if (bucket.part_size(rank_) == 0) return;
  span.read =
      file_->start_read(mine(span.bucket), span.whole.rows(bucket.parts[r], bucket.parts[r + 1]));
}

void ValueShards::start(Run& run, Span& span) {
  if (in_file_) {
    if (!span.reads) start_read(span);
    finish(span.read);
  } else {
    get(run, span.bucket, span.whole);
  }
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
    const std::size_t next = pass + 2;
    if (!in_file_ || span.first_pass != next || span.reads) continue;
    if (run.training || is_forward_[next]) start_read(span);
  }
}

void ValueShards::abandon() noexcept {
  for (Span& span : spans_) {
    try {
      finish(span.read);
    } catch (...) {  // as below
    }
    try {
      if (span.started && !span.ready) span.gather.wait();
    } catch (...) {  // the error of the step is already being reported
    }
    span.reads = span.started = span.ready = false;
  }
}

}  // namespace atl::parallel
