#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "atoll/nn/layer.h"

namespace atl::nn {

/// Layers one after the other, as one Layer.
///
/// An edge between two of them is kept when one of its neighbours reads it in backward; the others
/// alternate between two slots of scratch. The same holds for the gradients of edges, which are
/// owed when a weight pass reads them.
class Sequential final : public Layer {
 public:
  /// At least one layer. `keep_all`: edges are kept also where a layer offers to make its y again.
  explicit Sequential(std::vector<std::unique_ptr<Layer>> layers, bool keep_all = false);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  static constexpr int kInScratch = -1;
  // Where one layer's tensors stand in the kept and owed of the whole.
  struct Slot {
    Footprint footprint;
    std::size_t kept_begin = 0, owed_begin = 0;
    int y_kept = kInScratch;   // index into kept of the edge after this layer
    int y_owed = kInScratch;   // index into owed of the edge, where B makes it again
    int dy_owed = kInScratch;  // index into owed of that edge's gradient
  };
  struct Layout {
    Spec x;
    std::vector<Slot> slots;
    Footprint footprint;
    std::size_t edge_bytes = 0;  // of one of the two scratch slots for edges
  };

  const Layout& layout(Spec x) const;
  Layout make_layout(Spec x) const;
  bool can_make_again(const Layout& layout, std::size_t i) const;
  void make_edge_again(const Layout& layout, Run& inner, const Pass& pass, std::size_t i);
  std::size_t last() const { return layers_.size() - 1; }
  // The edge after layer i and its gradient, wherever they lie.
  Tensor edge(const Layout& layout, const Run& run, const Pass& pass, std::size_t i,
              bool backward) const;
  Tensor edge_gradient(const Layout& layout, const Run& run, const Pass& pass, std::size_t i) const;
  Pass inner_pass(const Layout& layout, const Pass& pass, std::size_t i) const;
  Run inner_run(const Layout& layout, const Run& run) const;

  std::vector<std::unique_ptr<Layer>> layers_;
  bool keep_all_;
  // plan() is a pure function of its spec; this remembers its last values, because a step asks
  // for the same few thousands of times. Not shared between threads: a model belongs to one rank.
  mutable std::vector<std::unique_ptr<Layout>> layouts_;
};

/// y = x + f(x), f adding x, and B the gradient that goes past it, where f can.  f must not need
/// its own y, which the sum overwrites.
class Residual final : public Layer {
 public:
  explicit Residual(std::unique_ptr<Layer> inner) : inner_(std::move(inner)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override { inner_->backward_weight(run, pass); }
  void visit(ParamVisitor& visitor) override { inner_->visit(visitor); }

 private:
  std::unique_ptr<Layer> inner_;
  // What inner_ adds itself: the same for every spec, and known once plan() was called.
  mutable bool adds_residual_ = false, adds_dresidual_ = false;
};

}  // namespace atl::nn
