#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/base/check.h"
#include "atoll/device/device.h"
#include "atoll/tensor/arena.h"
#include "atoll/tensor/tensor.h"

namespace atl::ops {
class OpProfile;
class StepRecord;
}  // namespace atl::ops

namespace atl {

/// Everything a call may use beside its arguments: there are no globals. Cheap to copy.
struct Run {
  Stream* stream = nullptr;
  /// Memory a call may overwrite and that is worthless when it returns. Each op and layer says
  /// beforehand how much it needs (`*_scratch_bytes`, Footprint::scratch_bytes).
  std::span<std::byte> scratch;

  // The key of every counter-based random draw, beside the layer and the element.
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< global index of the micro-batch's row 0

  /// False in evaluation and generation: no dropout, and no gradients are prepared.
  bool training = false;
  /// Row i of a product has the same bits whatever the other rows are, and however many: requests
  /// that are served together then get what each gets alone. On a CPU only (see matmul.h).
  bool row_stable = false;
  /// d(step loss)/d(sum of token losses): 1 / (targets in the global batch).
  double loss_scale = 1.0;

  /// Where ops note how long they took; null: nowhere.
  ops::OpProfile* profile = nullptr;

  /// While a graph of a GPU's work is captured: where its kernels find seed, step, first_sample and
  /// loss_scale, and what is made of them (ops/step_record.h). Null: they get them as they are
  /// here.
  ops::StepRecord* record = nullptr;

  ThreadPool& threads() const { return stream->threads(); }

  /// Takes a tensor off the front of the scratch; the rest stays for those called from here.
  /// Work on a copy of the Run, so that the memory comes back when the call returns.
  Tensor take_scratch(Spec spec) {
    const std::size_t bytes = align_up(spec.bytes());
    ATOLL_CHECK(bytes <= scratch.size(), "{} needed, {} bytes of scratch left", spec.to_string(),
                scratch.size());
    Tensor tensor(scratch.data(), spec, &stream->device());
    scratch = scratch.subspan(bytes);
    return tensor;
  }
};

}  // namespace atl
