#include "atoll/parallel/store/store_offload.h"

#include <algorithm>
#include <exception>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/tensor/paged_memory.h"

namespace atl::parallel {

namespace {

// A bucket that is needed again within so many passes stays in memory: if it were dropped, it would
// have to be read again at once.
constexpr std::size_t kKeptPasses = 2;

}  // namespace

OffloadStore::OffloadStore(nn::Model& model) : ParamStore(model, /*training=*/true, {}) {
  ATOLL_CHECK(frozen().empty(), "parameters in a file are all trained");
}

OffloadStore::~OffloadStore() {
  abandon();
}

void OffloadStore::request_file(MemoryPlan& file) {
  values_request_ = file.request_forever("parameters", "parameters", flat().bytes());
  grads_request_ =
      file.request_forever("gradients", "gradients", flat().in_compute_dtype().bytes());
}

void OffloadStore::bind_file(FileArena& file) {
  file_ = &file;
  set_vectors(file.arena().tensor(values_request_, flat()),
              file.arena().tensor(grads_request_, flat().in_compute_dtype()));
}

std::vector<OffloadStore::Stay> OffloadStore::stays(const Schedule& schedule,
                                                    bool of_gradients) const {
  std::vector<Stay> all;
  for (std::size_t b = 0; b < layout().buckets().size(); ++b) {
    const std::vector<std::size_t>& stages = layout().buckets()[b].stages;
    const std::size_t first_of_bucket = all.size();
    for (const StagePass& pass : schedule.passes()) {
      if (!std::binary_search(stages.begin(), stages.end(), pass.stage)) continue;
      if (of_gradients && !pass.makes_gradients) continue;
      if (all.size() > first_of_bucket && pass.number - all.back().last_pass <= kKeptPasses) {
        all.back().last_pass = pass.number;
      } else {
        Stay& stay = all.emplace_back();
        stay.bucket = b;
        stay.first_pass = stay.last_pass = pass.number;
      }
    }
    if (all.size() > first_of_bucket) all.back().is_last = true;
  }
  return all;
}

void OffloadStore::request(MemoryPlan& plan, const Schedule& schedule) {
  passes_.assign(schedule.passes().begin(), schedule.passes().end());
  values_stays_ = stays(schedule, false);
  gradient_stays_ = stays(schedule, true);
  const auto request_stays = [&](std::vector<Stay>& stays, const char* name, const char* group,
                                 Dtype dtype, std::size_t passes_after) {
    for (Stay& stay : stays) {
      const Bucket& bucket = layout().buckets()[stay.bucket];
      const std::size_t first = stay.first_pass > 0 ? stay.first_pass - 1 : 0;
      const std::size_t last = std::min(stay.last_pass + passes_after, passes_.size() - 1);
      // Two pages more: the memory must have the same offset within a page as the bucket has in the
      // file.
      stay.request = plan.request(fmt::format("{} of stage {}", name, bucket.stages.front()), group,
                                  Spec{dtype, {bucket.size()}}.bytes() + 2 * kFilePage,
                                  passes_[first].first_tick, passes_[last].last_tick);
    }
  };
  request_stays(values_stays_, "parameters", "parameters in memory", flat().dtype, 0);
  // One pass more: gradients are written during the pass that follows.
  request_stays(gradient_stays_, "gradients", "gradients in memory", compute_dtype(flat().dtype),
                1);
  request_fixed(plan);
}

Tensor OffloadStore::in_file(const Tensor& flat, std::size_t bucket) const {
  const Bucket& at = layout().buckets()[bucket];
  return flat.rows(at.begin, at.end);
}

void OffloadStore::bind_stays(const Arena& arena, std::vector<Stay>& stays,
                              const Tensor& flat) const {
  for (Stay& stay : stays) {
    const Tensor bucket = in_file(flat, stay.bucket);
    const auto bytes = static_cast<std::int64_t>(bucket.bytes() + 2 * kFilePage);
    stay.memory = placed_like(*file_, bucket,
                              from_first_page(arena.tensor(stay.request, {Dtype::kU8, {bytes}})));
  }
}

void OffloadStore::bind(const Arena& arena) {
  ATOLL_CHECK(file_ != nullptr, "bound to memory before its file");
  bind_stays(arena, values_stays_, values());
  bind_stays(arena, gradient_stays_, grads());
  has_gradients_.assign(layout().buckets().size(), false);
  squares_.assign(norm_blocks(layout().ranges()).size(), 0.0);
  bind_fixed(arena);
}

// Transfers of the previous walk over the schedule must end first: this walk uses the same memory.
void OffloadStore::begin_walk() {
  settle();
  for (std::vector<Stay>* stays : {&values_stays_, &gradient_stays_}) {
    for (Stay& stay : *stays) stay.started = stay.ready = false;
  }
}

void OffloadStore::prefetch(const Run& run, std::size_t next) {
  if (next >= passes_.size()) return;
  if (!run.training && passes_[next].kind != PassKind::kForward) return;
  for (Stay& stay : values_stays_) {
    if (stay.first_pass != next || stay.started) continue;
    stay.read = file_->start_read(in_file(values(), stay.bucket), stay.memory);
    stay.started = true;
  }
  for (Stay& stay : gradient_stays_) {
    if (!run.training || stay.first_pass != next || stay.started) continue;
    if (!has_gradients_[stay.bucket]) continue;
    for (Stay& other : gradient_stays_) {
      if (other.bucket == stay.bucket) finish(other.write);
    }
    stay.read = file_->start_read(in_file(grads(), stay.bucket), stay.memory);
    stay.started = true;
  }
}

void OffloadStore::acquire_values(Stay& stay) {
  finish(stay.read);
  stay.ready = true;
  const Bucket& bucket = layout().buckets()[stay.bucket];
  for (std::size_t i = bucket.first_param; i < bucket.end_param; ++i) {
    trained()[i]->value = view(stay.memory, bucket.begin, i);
  }
}

// The first pass of a step that adds to a bucket starts from zero; later passes start from the
// gradients in the file.
void OffloadStore::acquire_gradients(Run& run, Stay& stay) {
  if (stay.started) {
    finish(stay.read);
  } else {
    ops::fill_zero(run, stay.memory);
  }
  stay.ready = has_gradients_[stay.bucket] = true;
  const Bucket& bucket = layout().buckets()[stay.bucket];
  for (std::size_t i = bucket.first_param; i < bucket.end_param; ++i) {
    trained()[i]->grad = view(stay.memory, bucket.begin, i);
  }
}

void OffloadStore::acquire(Run& run, const StagePass& pass, bool /*idle*/) {
  if (enter_round() && round().index == 0) {
    has_gradients_.assign(has_gradients_.size(), false);
  }
  if (pass.number == 0) {
    begin_walk();
    prefetch(run, 0);
  }
  const auto stays_in = [&](const Stay& stay) {
    return stay.first_pass <= pass.number && pass.number <= stay.last_pass && !stay.ready;
  };
  for (Stay& stay : values_stays_) {
    if (stays_in(stay)) acquire_values(stay);
  }
  if (run.training) {
    for (Stay& stay : gradient_stays_) {
      if (stays_in(stay)) acquire_gradients(run, stay);
    }
  }
  prefetch(run, pass.number + 1);
}

void OffloadStore::release(Run& run, const StagePass& pass, bool /*idle*/) {
  if (!run.training) return;
  for (Stay& stay : gradient_stays_) {
    if (stay.last_pass + 1 == pass.number) finish(stay.write);
    if (stay.last_pass != pass.number) continue;
    if (stay.is_last && round().last) take_squares(run, stay);
    run.stream->synchronize();
    stay.write = file_->start_write(stay.memory, in_file(grads(), stay.bucket));
  }
}

// Computes the sums of squares of a bucket's blocks, at their places in squares_.
void OffloadStore::take_squares(Run& run, const Stay& stay) {
  const Bucket& bucket = layout().buckets()[stay.bucket];
  const std::vector<NormBlock> all = norm_blocks(layout().ranges());
  const auto first = std::partition_point(
      all.begin(), all.end(), [&](const NormBlock& block) { return block.begin < bucket.begin; });
  std::vector<ops::Block> blocks;
  for (auto at = first; at != all.end() && at->begin < bucket.end; ++at) {
    blocks.push_back({at->begin - bucket.begin, at->count});
  }
  const auto place = static_cast<std::size_t>(first - all.begin());
  ops::sums_of_squares(run, stay.memory, blocks, std::span(squares_).subspan(place, blocks.size()));
}

void OffloadStore::reduce(Run& /*run*/) {
  settle();
}

std::vector<double> OffloadStore::squares_of_blocks(Run& /*run*/) {
  return squares_;
}

void OffloadStore::settle() {
  std::exception_ptr failure;
  for (std::vector<Stay>* stays : {&values_stays_, &gradient_stays_}) {
    for (Stay& stay : *stays) {
      for (std::future<void>* transfer : {&stay.read, &stay.write}) {
        try {
          finish(*transfer);
        } catch (...) {
          if (!failure) failure = std::current_exception();
        }
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace atl::parallel
