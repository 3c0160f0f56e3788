#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "atoll/nn/adapters/low_rank_adapter.h"
#include "atoll/nn/adapters/served_adapters.h"
#include "atoll/nn/layer.h"
#include "atoll/ops/activation/activation.h"
#include "atoll/ops/fp8/layout.h"

namespace atl::nn {

/// y = x W^T [+ b] [+ s (x A^T) B^T].  x: (..., in)  y: (..., out)  W: (out, in), as Hugging Face
/// stores it. A and B are low-rank adapters that lora.h adds.
class Linear final : public Layer {
 public:
  /// `bias` with an empty name means no bias. W's spec is (out, in). `device`: whose memory is
  /// planned.
  explicit Linear(Param weight, Param bias = {}, DeviceKind device = DeviceKind::kCpu);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  /// The same with the sums of dy's columns for the bias, where an op has left them; else
  /// undefined.
  void backward_weight(Run& run, const Pass& pass, Tensor bias_sums);
  /// hidden = forward(x) and h = gelu(hidden), by one product where there can be.
  void forward_gelu(Run& run, ops::Gelu kind, Tensor x, Tensor hidden, Tensor h);
  bool trains_bias() const { return has_bias() && !bias_.frozen; }
  void visit(ParamVisitor& visitor) override;

  const Param& weight() const { return weight_; }
  /// From now on its three products round their operands to 8 bits. W is bf16. An adapter's own
  /// products stay in bf16.
  void use_fp8(ops::Fp8Scaling scaling);
  /// Adds a low-rank adapter (Hu et al. 2021, "LoRA") to the output rows that `blocks` name, each
  /// with factors of its own.  a: (num_blocks r, in)  b: (rows of all blocks, r). Rows of another
  /// rank or scale have an adapter of their own. `magnitude`: of DoRA (Liu et al. 2024), the
  /// lengths that these rows of W + s B A get, which the gradients of A and B take for constants of
  /// W, A and B; empty, or all adapters of a Linear have one, and its W is frozen.
  void add_adapter(Param a, Param b, std::vector<ops::DiagonalBlock> blocks, double scale,
                   Param magnitude = {});
  /// From now on a training pass gives the adapter x with elements dropped: x is then (B, T, in).
  /// 0 <= p < 1; `index` tells its draws from those of the model's other dropouts.
  void drop_adapter_input(double p, int index);
  /// From now on `observer` gets the x of each forward pass, before the product; empty: nobody
  /// does.
  void observe_input(std::function<void(const Tensor& x)> observer);
  /// From now on the rows that `adapters` names in a forward pass go through factors of their own,
  /// too; serve_factors() gives them. `adapters` must outlive this. Before memory is planned.
  void serve_adapters(const ServedAdapters* adapters);
  /// The factors of the adapter at that place; of a rank up to ServedAdapters::max_rank.
  void serve_factors(std::size_t adapter, ServedFactors factors);

 private:
  bool has_bias() const { return !bias_.name.empty(); }
  bool has_adapter() const { return !adapters_.empty(); }
  bool has_magnitudes() const { return has_adapter() && adapters_.front().has_magnitude(); }
  bool drops(const Run& run) const { return run.training && dropout_ > 0; }
  // Throws Error(kUser) where tensor cores do not take operands of these sizes.
  void check_fp8(const Spec& x) const;
  // y += s (x A^T) B^T of all adapters.
  void add_low_rank(Run& run, const Tensor& x, const Tensor& y);
  // Whatever rows have adapters in a step, so that the others go the same way each time.
  bool is_serving() const { return served_ != nullptr; }
  // The same for the rows that have an adapter of their own.
  void add_served(Run& run, const Pass& pass);
  std::size_t served_scratch_bytes(const Spec& x, const Spec& y) const;
  // What A is applied to: x, or x with elements dropped.
  Tensor adapter_input(Run& run, const Tensor& x) const;
  std::size_t adapter_scratch_bytes(const Spec& x) const;
  // y = x W^T [+ bias], and dx = dy W.
  void multiply(Run& run, const Tensor& x, const Tensor& y, const Tensor& bias = {});
  void multiply_back(Run& run, const Tensor& dy, const Tensor& dx);
  // The passes with DoRA; see linear_dora.cpp.
  Tensor take_gain(Run& run) const;
  void forward_dora(Run& run, const Pass& pass);
  void backward_input_dora(Run& run, const Pass& pass);
  void backward_weight_dora(Run& run, const Pass& pass);

  Param weight_;
  Param bias_;
  std::vector<LowRankAdapter> adapters_;
  double dropout_ = 0;
  int dropout_index_ = 0;
  std::optional<ops::Fp8Scaling> fp8_;
  std::function<void(const Tensor& x)> observer_;
  const ServedAdapters* served_ = nullptr;  // null: none are served
  std::vector<ServedFactors> served_factors_;
  DeviceKind device_;
};

}  // namespace atl::nn
