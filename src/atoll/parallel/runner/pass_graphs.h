#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>

#include "atoll/device/cuda/launch.h"
#include "atoll/ops/step_record.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// Runs the passes of a micro-batch on a GPU as a graph: the host queues the kernels once, and then
/// launches all of them with one call. That helps where kernels are so short that the host cannot
/// queue them fast enough.
class PassGraphs {
 public:
  /// Runs forward and backward of `batch`, whose tensors are on the device; queue(run) queues this
  /// work. `begins`: whether this is the first micro-batch of a step, which sets gradients to zero;
  /// such micro-batches have a graph of their own. The first call of each kind only queues the
  /// work, since some resources are made at their first use. The second call captures a graph and
  /// launches it; later calls launch that graph, with the seed, step, loss_scale and first_sample
  /// of the call. When the addresses of the batch's tensors change, the calls count from the first
  /// again. queue(run) must queue the same work at each call. Throws what queue(run) throws.
  void run(const Run& run, const Batch& batch, bool begins,
           const std::function<void(Run& run)>& queue);

  /// The number of graphs that are captured now.
  std::size_t num_captured() const;

 private:
  struct Captured {
    std::unique_ptr<ops::StepRecord> record;  // kernels of the graph read it
    std::unique_ptr<cuda::KernelGraph> graph;
  };
  using Addresses = std::array<const void*, 4>;

  static Captured capture(Run run, const std::function<void(Run& run)>& queue);

  Addresses addresses_ = {};         // of the batch's tensors: captured kernels have them
  std::map<bool, Captured> graphs_;  // by `begins`
};

}  // namespace atl::parallel
