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

/// What data-parallel ranks share (Rajbhandari et al. 2020, "ZeRO", section 5). Beside what each
/// stage shares, so does it what the stages before it do.
enum class Zero {
  kNone = 0,        ///< nothing: gradients are all-reduced
  kOptimizer = 1,   ///< optimizer state and the update; values are gathered after it
  kGradients = 2,   ///< gradients too
  kParameters = 3,  ///< parameters too: gathered before a stage runs, dropped after it
};

/// How ranks share a model.
struct DataParallelOptions {
  Zero zero = Zero::kNone;
  int num_ranks = 1;  ///< that share one copy: the size of the shard group
  int rank = 0;       ///< this one among them
  int replicas = 1;   ///< copies, each shared so (HSDP); needs zero > 0
  /// Gradients are summed over the micro-batches of the step in their order: bits do not depend on
  /// the number of ranks. Each round is reduced by itself.
  bool exact = false;
  std::int64_t rounds = 1;  ///< of gradient accumulation, the most that a step can have
  std::int64_t bucket_bytes = 8 << 20;
  bool whole_matrices = false;  ///< see LayoutOptions
  /// ZeRO 3: this rank's part of the values lies in a file, and its part of the gradients where it
  /// is a vector of its own (has_shard_gradients).
  bool in_file = false;
  /// Not with `exact`, copies or parts in a file; values of f32.
  CompressionOptions compression = {};

  /// Whether a SingleStore does all of this.
  bool is_plain() const { return num_ranks * replicas == 1 && (!exact || rounds == 1); }
  /// Whether this rank's values() are its part, and what it computes with is elsewhere.
  bool has_shard_values() const {
    return zero == Zero::kParameters || compression.weight_differences;
  }
  /// Whether the gradients of all parameters are kept between micro-batches. Otherwise those of a
  /// bucket live from its backward to its reduction.
  bool keeps_all_gradients() const { return zero < Zero::kGradients || (!exact && rounds > 1); }
  /// Whether reduced gradients lie apart, in a vector of this rank's share.
  bool has_shard_gradients() const { return (exact && rounds > 1) || !keeps_all_gradients(); }
};

/// How the flat vector of a store with these options is cut.
LayoutOptions layout_options(const DataParallelOptions& options);

/// Data parallel with ZeRO 0 to 3 and hybrid sharding. In a step every rank runs its micro-batches,
/// gradients are reduced in buckets as backward completes them, beside the rest of backward, and
/// each rank sums its part of every bucket in rank order. Without `exact`, micro-batches are added
/// up locally and reduced once.
///
/// Elements sent per step and rank, of P parameters, times (N - 1) / N: zero 0 to 2: 2 P; zero 3:
/// P each for a gather forward, one backward and a reduction, less what the last stages keep
/// between the two. With `exact` each round is reduced, and zero 3 gathers in each round.
/// With compression gradients and values have fewer bytes, and bits are others, the same ones for
/// every stage.
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
  /// Whether gradients are summed over ranks: not in steps that sum something else. Between steps.
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
  /// Waits for the values of a bucket that others have updated; `alone`: with no other threads.
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
