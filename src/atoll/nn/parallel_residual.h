#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "atoll/nn/layer.h"

namespace atl::nn {

/// y = x + f(x) + g(x): two branches that read the same x, such as attention and MLP of one block
/// (Wang and Komatsuzaki 2021, GPT-J; Black et al. 2022, "GPT-NeoX-20B", section 2.1). f and g
/// must not need their own y. Without the residual, y = f(x) + g(x): the chosen experts of a block
/// and those that all tokens go through.
class ParallelResidual final : public Layer {
 public:
  ParallelResidual(std::unique_ptr<Layer> first, std::unique_ptr<Layer> second, bool adds_x = true)
      : first_(std::move(first)), second_(std::move(second)), adds_x_(adds_x) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  // Both branches' footprints for one spec.
  struct Plans {
    Spec x;
    Footprint first, second;
  };
  const Plans& plans(const Spec& x) const;
  // The tensors of one branch; those of `first_` stand before those of `second_`.
  static Pass pass_of_first(const Plans& plans, const Pass& pass);
  static Pass pass_of_second(const Plans& plans, const Pass& pass);

  std::unique_ptr<Layer> first_, second_;
  bool adds_x_;
  // As in Sequential: remembered values of a pure function.
  mutable std::vector<std::unique_ptr<Plans>> plans_;
};

}  // namespace atl::nn
