#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "atoll/parallel/layout/in_file.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// The store of a single rank that keeps values and gradients in a file. The values of a stage are
/// in memory during its passes, and its gradients while passes add to them. During a pass, values
/// for the next pass are read, and gradients of the previous pass are written. values() and grads()
/// are views of the mapped file.
///
/// Transfers of a micro-batch, for P trained parameters: 2 P values are read, P in forward and P in
/// backward, less the buckets that stay in memory between the two; P gradients are written, and,
/// except in the first micro-batch of a step, P gradients are read.
class OffloadStore final : public ParamStore, public InFile {
 public:
  explicit OffloadStore(nn::Model& model);
  ~OffloadStore() override;

  void request_file(MemoryPlan& file) override;
  void bind_file(FileArena& file) override;
  bool has_gradients_in_file() const override { return true; }
  void request(MemoryPlan& plan, const Schedule& schedule) override;
  void bind(const Arena& arena) override;
  void acquire(Run& run, const StagePass& pass, bool idle) override;
  void release(Run& run, const StagePass& pass, bool idle) override;
  void reduce(Run& run) override;
  void publish(Run& /*run*/) override {}
  void settle() override;
  /// See ParamStore. The sums of squares were computed in the last round of the step, while the
  /// gradients were in memory.
  std::vector<double> squares_of_blocks(Run& run) override;

 private:
  // The values or the gradients of a bucket, in memory from one pass to another.
  struct Stay {
    std::size_t bucket = 0;
    std::size_t first_pass = 0, last_pass = 0;
    bool is_last = false;  // the last Stay of this bucket in the schedule
    int request = -1;
    Tensor memory;  // of the whole bucket
    std::future<void> read, write;
    bool started = false, ready = false;
  };

  std::vector<Stay> stays(const Schedule& schedule, bool of_gradients) const;
  void bind_stays(const Arena& arena, std::vector<Stay>& stays, const Tensor& in_file) const;
  void begin_walk();
  void prefetch(const Run& run, std::size_t pass);
  void acquire_values(Stay& stay);
  void acquire_gradients(Run& run, Stay& stay);
  void take_squares(Run& run, const Stay& stay);
  Tensor in_file(const Tensor& flat, std::size_t bucket) const;

  FileArena* file_ = nullptr;
  std::vector<StagePass> passes_;
  std::vector<Stay> values_stays_, gradient_stays_;
  std::vector<bool> has_gradients_;  // of each bucket: whether a pass of this step has added to it
  std::vector<double> squares_;      // of all blocks, in order
  int values_request_ = -1, grads_request_ = -1;  // in the plan of the file
};

}  // namespace atl::parallel
