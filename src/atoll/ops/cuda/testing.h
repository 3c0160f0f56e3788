#pragma once

// What the tests of kernels share: an op on the fake GPU, in several orders of threads, blocks and
// streams. Depends on no test library.

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/testing.h"

namespace atl::test {

/// Orders that a kernel's test runs: first to last, last to first, and six shuffled ones.
constexpr std::uint64_t kNumOrders = 8;

/// A Run on a fake GPU of its own. gpu(owned) is a copy of a host tensor in the GPU's memory, and
/// finish() waits and copies all of them back.
class Gpu {
 public:
  explicit Gpu(std::uint64_t order = 0, std::size_t scratch_bytes = std::size_t{4} << 20)
      : device_({.seed = order, .threads = 2}),
        stream_(device_.open_stream()),
        scratch_(device_, scratch_bytes) {
    run.stream = stream_.get();
    run.scratch = {static_cast<std::byte*>(scratch_.data()), scratch_bytes};
    run.training = true;
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  template <typename T>
  Tensor operator()(OwnedTensor<T>& host) {
    const Tensor view = host.view();
    buffers_.emplace_back(device_, std::max<std::size_t>(view.bytes(), 1));
    const Tensor here(buffers_.back().data(), view.spec(), &device_);
    device_.copy_now(here.raw(), view.raw(), view.bytes());
    returns_.push_back(
        [this, view, here] { device_.copy_now(view.raw(), here.raw(), view.bytes()); });
    return here;
  }
  void finish() {
    stream_->synchronize();
    for (const auto& back : returns_) back();
  }
  fake_cuda::FakeCudaDevice& device() { return device_; }

 private:
  fake_cuda::FakeCudaDevice device_;
  std::unique_ptr<Stream> stream_;
  Buffer scratch_;
  std::vector<Buffer> buffers_;
  std::vector<std::function<void()>> returns_;

 public:
  Run run;
};

/// Runs `use(gpu, operands)` on a copy of `operands` in every order; returns what the first left,
/// and calls differs(order) for each whose operands are not the same bits. Operands have
/// operator==.
template <typename Operands, typename Use, typename Differs>
Operands in_every_order(const Operands& operands, Use&& use, Differs&& differs) {
  Operands first = operands;
  for (std::uint64_t order = 0; order < kNumOrders; ++order) {
    Operands now = operands;
    Gpu gpu(order);
    use(gpu, now);
    gpu.finish();
    if (order == 0) first = now;
    if (!(now == first)) differs(order);
  }
  return first;
}

}  // namespace atl::test
