#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>

#include "atoll/device/cuda/launch.h"
#include "atoll/ops/step_record.h"
#include "atoll/tensor/batch.h"

namespace atl::parallel {

/// The work of a micro-batch on a GPU as a graph: what the host queues once is then launched by one
/// call. That pays where kernels are so short that the host cannot queue them fast enough.
class PassGraphs {
 public:
  /// Queues forward and backward of `batch`, whose tensors are on the device, as queue(run) does.
  /// `begins`: this is a step's first micro-batch, whose gradients begin at zero. The first of its
  /// kind is queued as it is, so that whatever is made at first use is made; the second is captured
  /// and launched; from the third on the graph is launched, for the run's seed, step, first_sample
  /// and loss_scale. queue(run) must queue the same work at each call. Throws what it throws.
  void run(const Run& run, const Batch& batch, bool begins,
           const std::function<void(Run& run)>& queue);

  /// How many were captured.
  std::size_t num_captured() const;

 private:
  struct Captured {
    std::unique_ptr<ops::StepRecord> record;  // memory that the graph's kernels read
    std::unique_ptr<cuda::KernelGraph> graph;
  };
  using Addresses = std::array<const void*, 4>;

  static Captured capture(Run run, const std::function<void(Run& run)>& queue);

  Addresses addresses_ = {};  // of a batch's tensors, which kernels keep
  std::map<bool, Captured> graphs_;
};

}  // namespace atl::parallel
