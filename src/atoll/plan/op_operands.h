#pragma once

#include <algorithm>
#include <deque>

#include "atoll/base/rng.h"
#include "atoll/ops/run.h"
#include "atoll/tensor/host_access.h"

namespace atl::plan {

/// The tensors of one case, and the Run that its calls get.
class Operands {
 public:
  explicit Operands(const Run& run) : run_(run) { run_.training = true; }

  Tensor zeros(const Spec& spec) {
    buffers_.emplace_back(run_.stream->device(), std::max<std::size_t>(spec.bytes(), 1));
    return tensor_in(buffers_.back(), spec);
  }
  /// Uniform in [-scale, scale): a million draws, again and again.
  Tensor random(const Spec& spec, float scale = 1) {
    const Tensor tensor = zeros(spec);
    const RngStream stream(buffers_.size(), RngPurpose::kSynthetic);
    const auto fill = [&](auto all, auto&& store) {
      const std::size_t drawn = std::min(all.size(), kDraws);
      run_.threads().run_chunked(
          static_cast<std::int64_t>(drawn), 1 << 14, [&](auto begin, auto end) {
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
              all[i] = store(scale * (2 * stream.uniform(i) - 1));
            }
          });
      for (std::size_t i = drawn; i < all.size(); i += kDraws) {
        const std::size_t count = std::min(kDraws, all.size() - i);
        std::copy_n(all.begin(), count, all.begin() + static_cast<std::ptrdiff_t>(i));
      }
    };
    if (spec.dtype == Dtype::kBf16) {
      write_on_host<Bf16>(tensor, [&](auto all) { fill(all, to_bf16); });
    } else {
      write_on_host<float>(tensor, [&](auto all) { fill(all, [](float draw) { return draw; }); });
    }
    return tensor;
  }
  /// i32 in [0, bound).
  Tensor tokens(const Shape& shape, std::int64_t bound) {
    const Tensor tensor = zeros({Dtype::kI32, shape});
    const RngStream stream(1, RngPurpose::kSynthetic, 1);
    write_on_host<std::int32_t>(tensor, [&](std::span<std::int32_t> all) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<std::int32_t>(stream.word(i) % static_cast<std::uint32_t>(bound));
      }
    });
    return tensor;
  }
  void scratch(std::size_t bytes) {
    zeros({Dtype::kU8, {as_size(bytes)}});
    run_.scratch = {static_cast<std::byte*>(buffers_.back().data()), bytes};
  }
  Run& run() { return run_; }

 private:
  static constexpr std::size_t kDraws = std::size_t{1} << 20;
  static std::int64_t as_size(std::size_t bytes) { return static_cast<std::int64_t>(bytes); }

  Run run_;
  std::deque<Buffer> buffers_;
};

}  // namespace atl::plan
