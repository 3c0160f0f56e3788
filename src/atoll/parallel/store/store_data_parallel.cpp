#include "atoll/parallel/store/store_data_parallel.h"

#include <algorithm>
#include <exception>

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::parallel {

// A bucket during a step.
struct DataParallelStore::BucketState {
  Tensor gradients;                  // of the whole bucket
  int request = -1;                  // memory of `gradients`, where it is not permanent
  std::int64_t shard_at = 0;         // where this rank's part begins in shard_gradients_
  comm::Work reduction;              // of the gradients of one round
  comm::Work gather;                 // of updated values (ZeRO 1 and 2)
  bool gathers_differences = false;  // `gather` has differences that are not applied yet
  bool begun = false;                // a pass of this round has acquired the gradients
  bool is_late = false;              // see ParamStore::finish_late
  std::size_t unfinished = 0;        // stages whose gradients are not complete in this round
};

namespace {

// The ranges of a rank's part. Where values or gradients are whole on this rank, their places are
// those of the flat vector.
std::vector<optim::ParamRange> ranges_of(const FlatLayout& layout, int rank,
                                         const DataParallelOptions& options) {
  std::vector<optim::ParamRange> ranges = layout.ranges_of(rank);
  for (optim::ParamRange& range : ranges) {
    if (!options.has_shard_values()) range.value_begin = range.begin;
    if (!options.has_shard_gradients()) range.grad_begin = range.begin;
  }
  return ranges;
}

}  // namespace

LayoutOptions layout_options(const DataParallelOptions& options) {
  // ZeRO 3 gathers stage by stage, so its buckets are stages. With ZeRO 0 every rank updates whole
  // matrices anyway, so parts may cut them.
  return {.num_ranks = options.num_ranks,
          .bucket_bytes = options.zero == Zero::kParameters ? 0 : options.bucket_bytes,
          .whole_matrices = options.whole_matrices && options.zero != Zero::kNone};
}

DataParallelStore::DataParallelStore(nn::Model& model, bool training,
                                     const DataParallelOptions& options)
    : ParamStore(model, training, layout_options(options)), options_(options) {
  ATOLL_CHECK(options.rank >= 0 && options.rank < options.num_ranks && options.replicas >= 1 &&
                  options.rounds >= 1,
              "rank {} of {}, {} replicas, {} rounds", options.rank, options.num_ranks,
              options.replicas, options.rounds);
  ATOLL_CHECK(!options.in_file || options.zero == Zero::kParameters);
  ATOLL_CHECK(options.replicas == 1 || (shares_update() && !options.exact));
  const CompressionOptions& compression = options.compression;
  if (compression.gradients != Compression::kNone || compression.weight_differences) {
    ATOLL_CHECK(!options.exact && options.replicas == 1 && !options.in_file, "compression");
  }
  compressed_ = make_compressed_reduction(layout(), options.rank, compression);
  if (compression.weight_differences) {
    ATOLL_CHECK(flat().dtype == Dtype::kF32 && shares_update() && options.zero < Zero::kParameters,
                "differences of {} with ZeRO {}", flat().to_string(),
                static_cast<int>(options.zero));
    differences_ = std::make_unique<WeightDifferences>(layout(), options.rank);
  }
  if (options.zero == Zero::kParameters) {
    values_shards_ = std::make_unique<ValueShards>(layout(), options.rank, options.in_file);
  }
  std::int64_t at = 0;
  for (const Bucket& bucket : layout().buckets()) {
    buckets_.emplace_back().shard_at = at;
    at += bucket.part_size(options.rank);
    completion_.push_back(completion_.size());
  }
  std::stable_sort(completion_.begin(), completion_.end(), [&](std::size_t a, std::size_t b) {
    return layout().buckets()[a].stages.front() > layout().buckets()[b].stages.front();
  });
  if (shares_update()) set_part(ranges_of(layout(), options.rank, options), options.rank);
}

DataParallelStore::~DataParallelStore() {
  abandon();
}

// The schedule of a pipeline may complete stages in another order than from the last to the first.
void DataParallelStore::order_buckets(const Schedule& schedule) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = layout().buckets()[b];
    const auto params =
        trained().subspan(bucket.first_param, bucket.end_param - bucket.first_param);
    buckets_[b].is_late = std::any_of(params.begin(), params.end(),
                                      [&](const nn::Param* param) { return is_late(param); });
    ATOLL_CHECK(!buckets_[b].is_late || (!options_.exact && options_.rounds == 1),
                "gradients that are late in several rounds");
  }
  const auto when = [&](std::size_t b) {
    return std::pair(buckets_[b].is_late,
                     schedule.last_gradients(layout().buckets()[b].stages).number);
  };
  std::stable_sort(completion_.begin(), completion_.end(),
                   [&](std::size_t a, std::size_t b) { return when(a) < when(b); });
}

void DataParallelStore::request(MemoryPlan& plan, const Schedule& schedule) {
  if (training()) order_buckets(schedule);
  if (values_shards_) {
    values_shards_->request(plan, schedule);
  } else if (differences_) {
    differences_->request(plan);
  } else {
    values_request_ = plan.request_forever("parameters", "parameters", flat().bytes());
  }
  if (training()) request_gradients(plan, schedule);
  if (training() && compressed_) compressed_->request(plan);
  request_fixed(plan);
}

void DataParallelStore::request_file(MemoryPlan& file) {
  values_shards_->request_file(file);
  if (!has_gradients_in_file()) return;
  const Dtype dtype = compute_dtype(flat().dtype);
  shard_gradients_request_ =
      file.request_forever("gradients, this rank's part", "gradients",
                           Spec{dtype, {layout().share(options_.rank)}}.bytes());
}

void DataParallelStore::bind_file(FileArena& file) {
  file_ = &file;
  values_shards_->bind_file(file);
}

void DataParallelStore::request_gradients(MemoryPlan& plan, const Schedule& schedule) {
  const Spec all = flat().in_compute_dtype();
  if (options_.keeps_all_gradients()) {
    all_gradients_request_ = plan.request_forever("gradients", "gradients", all.bytes());
  }
  if (options_.has_shard_gradients() && !options_.in_file) {
    shard_gradients_request_ =
        plan.request_forever("gradients, this rank's part", "gradients",
                             Spec{all.dtype, {layout().share(options_.rank)}}.bytes());
  }
  if (options_.keeps_all_gradients()) return;
  // The gradients of a bucket need memory from the first pass that adds to them to the end of their
  // reduction. end_bucket() waits for that when the next bucket is complete.
  for (std::size_t i = 0; i < completion_.size(); ++i) {
    const Bucket& bucket = layout().buckets()[completion_[i]];
    const bool is_last = i + 1 == completion_.size() || buckets_[completion_[i + 1]].is_late;
    const std::size_t waits = completion_[is_last ? i : i + 1];
    const std::int64_t last_tick =
        buckets_[completion_[i]].is_late
            ? std::ssize(schedule.actions())  // until reduce()
            : schedule.last_gradients(layout().buckets()[waits].stages).last_tick;
    buckets_[completion_[i]].request =
        plan.request("gradients of stage " + std::to_string(bucket.stages.front()),
                     "bucket gradients", Spec{all.dtype, {bucket.size()}}.bytes(),
                     schedule.first_gradients(bucket.stages).first_tick, last_tick);
  }
}

void DataParallelStore::bind(const Arena& arena) {
  if (values_shards_) {
    values_shards_->bind(arena);
    set_vectors(values_shards_->values(), {});
  } else {
    if (differences_) {
      differences_->bind(arena);
      set_vectors(differences_->masters(), {});
    } else {
      set_vectors(arena.tensor(values_request_, flat()), {});
    }
    const Tensor all = computed_with();
    for (std::size_t i = 0; i < trained().size(); ++i) trained()[i]->value = view(all, 0, i);
  }
  if (training()) bind_gradients(arena);
  if (training() && compressed_) compressed_->bind(arena);
  bind_fixed(arena);
}

void DataParallelStore::bind_gradients(const Arena& arena) {
  const Spec all = flat().in_compute_dtype();
  if (options_.keeps_all_gradients()) all_gradients_ = arena.tensor(all_gradients_request_, all);
  if (options_.has_shard_gradients()) {
    const Arena& place = has_gradients_in_file() ? file_->arena() : arena;
    shard_gradients_ =
        place.tensor(shard_gradients_request_, {all.dtype, {layout().share(options_.rank)}});
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = layout().buckets()[b];
    Tensor& gradients = buckets_[b].gradients;
    gradients = options_.keeps_all_gradients()
                    ? all_gradients_.rows(bucket.begin, bucket.end)
                    : arena.tensor(buckets_[b].request, {all.dtype, {bucket.size()}});
    for (std::size_t i = bucket.first_param; i < bucket.end_param; ++i) {
      trained()[i]->grad = view(gradients, bucket.begin, i);
    }
  }
  const bool whole = !shares_update() || !options_.has_shard_gradients();
  set_vectors(values(), whole ? all_gradients_ : shard_gradients_);
}

comm::Group& DataParallelStore::shard() const {
  ATOLL_CHECK(shard_group() != nullptr, "not connected");
  return *shard_group();
}

// The beginning of a round: no stage has added to a bucket yet.
void DataParallelStore::begin_buckets() {
  const int copies = replicate_group() == nullptr ? 1 : replicate_group()->size();
  ATOLL_CHECK(shard().size() == options_.num_ranks && shard().rank() == options_.rank &&
                  copies == options_.replicas,
              "connected to rank {} of {}, {} copies", shard().rank(), shard().size(), copies);
  // No wait separates the reduce-scatter of the shard group from the all-reduce among copies: only
  // calls of one channel run in order.
  ATOLL_CHECK(copies == 1 || &replicate_group()->channel() == &shard().channel(),
              "{} and {} have different channels", shard().name(), replicate_group()->name());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].begun = false;
    buckets_[b].unfinished = layout().buckets()[b].stages.size();
  }
}

void DataParallelStore::acquire(Run& run, const StagePass& pass, bool idle) {
  if (enter_round()) begin_buckets();
  if (values_shards_) {
    if (pass.number == 0) values_shards_->begin_walk(shard());
    values_shards_->acquire(run, pass.number, [this](comm::Work& work) { wait(work); });
  }
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<std::size_t>& users = layout().buckets()[b].stages;
    if (!std::binary_search(users.begin(), users.end(), pass.stage)) continue;
    end_gather(b, /*alone=*/false);
    if (run.training && pass.makes_gradients) begin_bucket(run, b, idle);
  }
}

// The first pass that adds to a bucket in a round. Without `exact`, gradients of earlier rounds
// stay: the rank adds its rounds up.
void DataParallelStore::begin_bucket(Run& run, std::size_t bucket, bool idle) {
  BucketState& state = buckets_[bucket];
  if (state.begun) return;
  state.begun = true;
  wait(state.reduction);  // of the previous round, which reads this memory
  if (!idle && (options_.exact || round().index == 0)) ops::fill_zero(run, state.gradients);
}

void DataParallelStore::release(Run& run, const StagePass& pass, bool idle) {
  if (!run.training || !pass.completes_gradients) return;
  for (const std::size_t b : completion_) {
    const std::vector<std::size_t>& stages = layout().buckets()[b].stages;
    if (!std::binary_search(stages.begin(), stages.end(), pass.stage)) continue;
    if (--buckets_[b].unfinished == 0 && !buckets_[b].is_late) end_bucket(run, b, idle);
  }
}

Tensor DataParallelStore::part_of(const Tensor& flat, const Bucket& bucket) const {
  const auto r = static_cast<std::size_t>(options_.rank);
  return flat.rows(bucket.begin + bucket.parts[r], bucket.begin + bucket.parts[r + 1]);
}

// All gradients of the bucket are complete in this round: starts their reduction.
void DataParallelStore::end_bucket(Run& run, std::size_t b, bool idle) {
  if (!reduces_now()) return;
  // No wait: the transfer reads permanent memory, either the gradients or their codes.
  if (options_.keeps_all_gradients() || compressed_) return reduce_bucket(run, b, idle);
  // The memory of the bucket before this one is planned up to this pass: its reduction must end.
  const auto at = std::find(completion_.begin(), completion_.end(), b);
  if (at != completion_.begin()) wait(buckets_[*(at - 1)].reduction);
  reduce_bucket(run, b, idle);
  // The next micro-batch uses the memory of the last bucket for other tensors.
  const bool is_last = at + 1 == completion_.end() || buckets_[*(at + 1)].is_late;
  if (is_last) wait(buckets_[b].reduction);
}

// The memory for the sum of this rank's part of a bucket.
Tensor DataParallelStore::place_of_sum(std::size_t b) const {
  const Bucket& bucket = layout().buckets()[b];
  if (!options_.has_shard_gradients()) return part_of(all_gradients_, bucket);
  const std::int64_t at = buckets_[b].shard_at;
  return shard_gradients_.rows(at, at + bucket.part_size(options_.rank));
}

void DataParallelStore::reduce_bucket(Run& run, std::size_t b, bool idle) {
  const Bucket& bucket = layout().buckets()[b];
  BucketState& state = buckets_[b];
  if (!options_.exact || !idle) {
    sum_shared(bucket.first_param, bucket.end_param, state.gradients, bucket.begin);
  }
  if (compressed_) {
    state.reduction = compressed_->start(run, shard(), b, state.gradients);
    return;
  }
  const bool all_contribute = !options_.exact || round().contributors.empty() ||
                              static_cast<int>(round().contributors.size()) == options_.num_ranks;
  const bool everybody_needs_it = !shares_update() && !options_.has_shard_gradients();
  if (everybody_needs_it && all_contribute) {
    state.reduction = shard().start_all_reduce(state.gradients);
    return;
  }
  const Tensor mine = place_of_sum(b);
  comm::Group::ReduceScatter how;
  if (options_.exact) {
    how.accumulate = round().index > 0;
    how.contributors = round().contributors;
  }
  const Tensor contribution = options_.exact && idle ? Tensor() : state.gradients;
  state.reduction = shard().start_reduce_scatter(contribution, bucket.parts, mine, how);
  if (everybody_needs_it) state.reduction = shard().start_all_gather(state.gradients, bucket.parts);
  if (options_.replicas > 1) state.reduction = replicate_group()->start_all_reduce(mine);
}

void DataParallelStore::reduce(Run& run) {
  finish_late();
  if (!sums_gradients_) return;
  for (const std::size_t b : completion_) {
    if (buckets_[b].is_late) reduce_bucket(run, b, /*idle=*/false);
  }
  if (compressed_) return reduce_compressed(run);
  for (const std::size_t b : completion_) wait(buckets_[b].reduction);
  if (shares_update() || !options_.has_shard_gradients()) return;
  // ZeRO 0 with `exact` and several rounds: the sums lie in shard_gradients_, and every rank needs
  // all of them.
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = layout().buckets()[b];
    const Tensor mine = part_of(all_gradients_, bucket);
    const Tensor sum =
        shard_gradients_.rows(buckets_[b].shard_at, buckets_[b].shard_at + mine.num_elements());
    if (mine.bytes() > 0) ops::copy(run, sum, mine);
    buckets_[b].reduction = shard().start_all_gather(buckets_[b].gradients, bucket.parts);
  }
  for (BucketState& bucket : buckets_) wait(bucket.reduction);
}

void DataParallelStore::reduce_compressed(Run& run) {
  for (const std::size_t b : completion_) {
    wait(buckets_[b].reduction);
    buckets_[b].reduction = compressed_->next(run, shard(), b, buckets_[b].gradients,
                                              place_of_sum(b), !shares_update());
  }
  for (const std::size_t b : completion_) {
    wait(buckets_[b].reduction);
    compressed_->end(run, b, buckets_[b].gradients);
  }
}

void DataParallelStore::publish(Run& run) {
  // In a step that did not sum gradients, every rank has updated all values.
  if (!shares_update() || values_shards_ || !sums_gradients_) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (differences_) {
      buckets_[b].gather = differences_->start(run, shard(), b);
      buckets_[b].gathers_differences = true;
      continue;
    }
    const Bucket& bucket = layout().buckets()[b];
    buckets_[b].gather =
        shard().start_all_gather(values().rows(bucket.begin, bucket.end), bucket.parts);
  }
}

void DataParallelStore::end_gather(std::size_t b, bool alone) {
  wait(buckets_[b].gather);
  if (!std::exchange(buckets_[b].gathers_differences, false)) return;
  differences_->apply(b, alone);
}

std::vector<optim::StateTensor> DataParallelStore::state() const {
  std::vector<optim::StateTensor> all;
  if (compressed_) all = compressed_->state();
  if (differences_) {
    for (optim::StateTensor& piece : differences_->state()) all.push_back(std::move(piece));
  }
  return all;
}

Tensor DataParallelStore::computed_with() const {
  if (values_shards_) return {};
  return differences_ ? differences_->published() : values();
}

void DataParallelStore::settle() {
  if (values_shards_) values_shards_->abandon();  // the transfers of a pass that failed
  std::exception_ptr failure;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketState& bucket = buckets_[b];
    try {
      wait(bucket.reduction);
    } catch (...) {
      bucket.reduction = {};
      if (!failure) failure = std::current_exception();
    }
    try {
      end_gather(b, /*alone=*/true);
    } catch (...) {
      bucket.gather = {};
      bucket.gathers_differences = false;
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace atl::parallel
