#pragma once

// What the tests of kernels share: an op on the fake GPU, in several orders of threads, blocks and
// streams. Depends on no test library.

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/testing.h"

namespace atl::test {

/// Orders that a kernel's test runs: first to last, last to first, and six shuffled ones.
/// ThreadSanitizer needs one to see what is not ordered, and is slow.
constexpr std::uint64_t kNumOrders = fake_cuda::kHasThreadSanitizer ? 1 : 8;
/// Instead of an order: the GPU of this machine.
constexpr std::uint64_t kRealGpu = UINT64_MAX;

/// Whether there is a GPU here, and kernels that nvcc compiled for it.
inline bool has_real_gpu() {
  return probe_gpus().built_in && probe_gpus().problem.empty();
}

inline std::unique_ptr<Device> open_gpu(std::uint64_t order, fake_cuda::Checks checks = {}) {
  if (order == kRealGpu) return open_cuda(0);
  return std::make_unique<fake_cuda::FakeCudaDevice>(
      fake_cuda::Options{.seed = order, .threads = 2, .checks = checks});
}

/// A Run on a fake GPU of its own, or on a real one. gpu(owned) is a copy of a host tensor in the
/// GPU's memory, and finish() waits and copies all of them back.
class Gpu {
 public:
  explicit Gpu(std::uint64_t order = 0, std::size_t scratch_bytes = std::size_t{4} << 20,
               fake_cuda::Checks checks = {})
      : device_(open_gpu(order, checks)),
        stream_(device_->open_stream()),
        scratch_(*device_, scratch_bytes) {
    run.stream = stream_.get();
    run.scratch = {static_cast<std::byte*>(scratch_.data()), scratch_bytes};
    run.training = true;
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  template <typename T>
  Tensor operator()(OwnedTensor<T>& host) {
    const Tensor view = host.view();
    buffers_.emplace_back(*device_, std::max<std::size_t>(view.bytes(), 1));
    const Tensor here(buffers_.back().data(), view.spec(), device_.get());
    device_->copy_now(here.raw(), view.raw(), view.bytes());
    returns_.push_back(
        [this, view, here] { device_->copy_now(view.raw(), here.raw(), view.bytes()); });
    return here;
  }
  void finish() {
    stream_->synchronize();
    for (const auto& back : returns_) back();
  }
  bool is_fake() const {
    return dynamic_cast<const fake_cuda::FakeCudaDevice*>(device_.get()) != nullptr;
  }
  /// Of a fake one.
  fake_cuda::FakeCudaDevice& device() { return dynamic_cast<fake_cuda::FakeCudaDevice&>(*device_); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Buffer scratch_;
  std::vector<Buffer> buffers_;
  std::vector<std::function<void()>> returns_;

 public:
  Run run;
};

/// Runs `use(gpu, operands)` on a copy of `operands` in every order; returns what the first left,
/// and calls differs(order) for each whose operands are not the same bits. Operands have
/// operator==. Where there is a GPU it must give these bits too, unless `has_products`: a library's
/// sums have an order of their own.
template <typename Operands, typename Use, typename Differs>
Operands in_every_order(const Operands& operands, Use&& use, Differs&& differs,
                        bool has_products = false) {
  Operands first = operands;
  std::vector<std::uint64_t> orders(kNumOrders);
  std::iota(orders.begin(), orders.end(), 0);
  if (!has_products && has_real_gpu()) orders.push_back(kRealGpu);
  for (const std::uint64_t order : orders) {
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
