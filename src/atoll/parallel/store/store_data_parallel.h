#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/parallel/compress/compression.h"
#include "atoll/parallel/compress/weight_differences.h"
#include "atoll/parallel/layout/in_file.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/parallel/store/value_shards.h"

namespace atl::parallel {

/// What data-parallel ranks shard (Rajbhandari et al. 2020, "ZeRO", section 5). Each ZeRO stage
/// also shards what the stages before it shard.
enum class Zero {
  kNone = 0,        ///< nothing: gradients are all-reduced
  kOptimizer = 1,   ///< optimizer state and the update; updated values are all-gathered
  kGradients = 2,   ///< gradients too
  kParameters = 3,  ///< parameters too: gathered before a pass of a stage, dropped after it
};

/// How data-parallel ranks share a model.
struct DataParallelOptions {
  Zero zero = Zero::kNone;
  int num_ranks = 1;  ///< ranks that share one copy of the model: the size of the shard group
  int rank = 0;       ///< this rank in the shard group
  int replicas = 1;   ///< copies of the model, each sharded (HSDP); more than one needs zero > 0
  /// Gradients are summed over the micro-batches of the step in their order, so bits do not depend
  /// on the number of ranks. For that, the gradients of each round are reduced separately.
  bool exact = false;
  std::int64_t rounds = 1;  ///< of gradient accumulation: the most that a step can have
  std::int64_t bucket_bytes = 8 << 20;
  bool whole_matrices = false;  ///< see LayoutOptions
  /// ZeRO 3 only: this rank's part of the values lies in a file. So does its part of the gradients
  /// where has_shard_gradients().
  bool in_file = false;
  /// Not with `exact`, several copies or `in_file`. Gradients must be f32; weight_differences also
  /// needs values in f32, and ZeRO 1 or 2.
  CompressionOptions compression = {};

  /// Whether a SingleStore can do the same.
  bool is_plain() const { return num_ranks * replicas == 1 && (!exact || rounds == 1); }
  /// Whether values() is only this rank's part, and passes read other memory.
  bool has_shard_values() const {
    return zero == Zero::kParameters || compression.weight_differences;
  }
  /// Whether the gradients of all parameters have permanent memory. Otherwise the gradients of a
  /// bucket have memory only from its first backward pass to the end of its reduction.
  bool keeps_all_gradients() const { return zero < Zero::kGradients || (!exact && rounds > 1); }
  /// Whether the reduced gradients of this rank's part have a vector of their own.
  bool has_shard_gradients() const { return (exact && rounds > 1) || !keeps_all_gradients(); }
};

/// How a store with these options cuts the flat vector.
LayoutOptions layout_options(const DataParallelOptions& options);

/// Data parallel with ZeRO 0 to 3 and hybrid sharding. Each rank runs its own micro-batches. As
/// soon as backward has completed the gradients of a bucket, their reduction starts and runs during
/// the rest of backward. Each rank sums its part of every bucket in rank order. Without `exact`, a
/// rank adds up the gradients of its rounds, and the ranks reduce once a step.
///
/// Elements that each of N ranks sends in a step of one round, for P parameters, times (N - 1) / N:
/// ZeRO 0 to 2: 2 P. ZeRO 3: P for the gathers of forward, P for those of backward and P for the
/// reduction, less the buckets that stay gathered between forward and backward. ZeRO 3 gathers in
/// every round; with `exact`, ranks also reduce in every round.
/// With compression ranks send fewer bytes, and results have other bits, which are the same for
/// every ZeRO stage.
class DataParallelStore final : public ParamStore, public InFile {
 public:
  DataParallelStore(nn::Model& model, bool training, const DataParallelOptions& options);
  ~DataParallelStore() override;

  const DataParallelOptions& options() const { return options_; }

  /// Only with DataParallelOptions::in_file.
  void request_file(MemoryPlan& file) override;
  void bind_file(FileArena& file) override;
  bool has_gradients_in_file() const override {
    return options_.in_file && options_.has_shard_gradients();
  }
  void request(MemoryPlan& plan, const Schedule& schedule) override;
  void bind(const Arena& arena) override;
  void acquire(Run& run, const StagePass& pass, bool idle) override;
  void release(Run& run, const StagePass& pass, bool idle) override;
  void reduce(Run& run) override;
  void publish(Run& run) override;
  void settle() override;
  std::vector<optim::StateTensor> state() const override;
  std::vector<Tensor> factors() const override {
    return compressed_ ? compressed_->factors() : std::vector<Tensor>();
  }
  Tensor computed_with() const override;
  void values_filled() override {
    if (differences_) differences_->take_masters();
  }
  /// Whether ranks sum gradients in the next step. A OneBitOptimizer turns this off for steps in
  /// which ranks exchange signs instead. To be called between steps.
  void set_sums_gradients(bool sums) { sums_gradients_ = sums; }

 private:
  struct BucketState;

  void request_gradients(MemoryPlan& plan, const Schedule& schedule);
  void bind_gradients(const Arena& arena);
  void begin_buckets();
  void order_buckets(const Schedule& schedule);
  comm::Group& shard() const;
  void begin_bucket(Run& run, std::size_t bucket, bool idle);
  void end_bucket(Run& run, std::size_t bucket, bool idle);
  void reduce_bucket(Run& run, std::size_t bucket, bool idle);
  void reduce_compressed(Run& run);
  Tensor place_of_sum(std::size_t bucket) const;
  /// Waits for the updated values of a bucket from the other ranks. `alone`: decodes on this
  /// thread, without the stream's threads.
  void end_gather(std::size_t bucket, bool alone);
  bool reduces_now() const { return sums_gradients_ && (options_.exact || round().last); }
  bool shares_update() const { return options_.zero != Zero::kNone; }
  Tensor part_of(const Tensor& flat, const Bucket& bucket) const;

  DataParallelOptions options_;
  std::vector<BucketState> buckets_;
  std::vector<std::size_t> completion_;  // buckets in the order in which backward completes them
  std::unique_ptr<ValueShards> values_shards_;  // zero 3
  std::unique_ptr<CompressedReduction> compressed_;
  std::unique_ptr<WeightDifferences> differences_;
  bool sums_gradients_ = true;
  int values_request_ = -1, all_gradients_request_ = -1, shard_gradients_request_ = -1;
  Tensor all_gradients_, shard_gradients_;
  FileArena* file_ = nullptr;
};

}  // namespace atl::parallel
