#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "atoll/parallel/layout/in_file.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::parallel {

/// The store of a rank that shares nothing, with values and gradients in a file. A stage's values
/// are in memory while it runs, and its gradients while passes add to them. The values of the next
/// pass are read beside the present one, and gradients are written beside the passes that follow.
/// values() and grads() are views of the mapped file.
///
/// Bytes that a micro-batch moves, of P trained parameters: values 2 P, one forward and one
/// backward, less what the last stages keep between the two; gradients P written, and P read after
/// the first micro-batch of a step.
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
  /// Of the step that is over: taken while the gradients were in memory.
  std::vector<double> squares_of_blocks(Run& run) override;

 private:
  // Passes for which a bucket's values, or its gradients, stay in memory.
  struct Stay {
    std::size_t bucket = 0;
    std::size_t first_pass = 0, last_pass = 0;
    bool is_last = false;  // of this bucket in the walk
    int request = -1;
    Tensor memory;  // of the bucket
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
  std::vector<bool> has_gradients_;  // of each bucket: something was added in this step
  std::vector<double> squares_;      // of all blocks, in order
  int values_request_ = -1, grads_request_ = -1;  // in the file
};

}  // namespace atl::parallel
