#pragma once

#include <span>
#include <vector>

#include "atoll/nn/layer.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

/// The RMS norms of queries and keys between their projection and their rotation: of each head by
/// itself (Qwen3), or of all query heads of a row together, and of all its key heads (OLMo 2).
/// Values stay as they are.
class QueryKeyNorm {
 public:
  /// `query`, `key`: the weights, (head_dim) where each head has its norm, else
  /// (heads.query_width()) and (heads.kv_width()). Both empty: there is no norm.
  QueryKeyNorm(const ops::HeadLayout& heads, const ops::RmsScale& scale, Param query, Param key);

  bool exists() const { return !query_.name.empty(); }
  /// Adds to a layer's footprint what is kept from forward to B, with the projection's output
  /// first, and what is owed from B to W. Returns the scratch of either pass.
  std::size_t plan(const Spec& qkv, Footprint& footprint) const;
  /// How many tensors plan() adds to what is kept.
  std::size_t num_kept() const;

  /// kept[0], (B, T, heads.qkv_width()), is what the projection gave; qkv gets the result.
  void forward(Run& run, std::span<const Tensor> kept, const Tensor& qkv) const;
  /// dqkv, the gradient of the result, becomes that of what the projection gave.
  void backward_input(Run& run, std::span<const Tensor> kept, const Tensor& dqkv,
                      std::span<const Tensor> owed) const;
  void backward_weight(Run& run, std::int64_t rows, std::span<const Tensor> owed);
  void visit(ParamVisitor& visitor);

 private:
  // One of the two norms of all heads together: where its columns lie in a row.
  struct Part {
    const Param* weight;
    std::int64_t first;
    std::int64_t width;
  };
  bool is_of_rows() const { return query_.spec.shape.dim(0) != heads_.head_dim; }
  Part part(std::size_t which) const;
  // Copies the part's columns of fused rows into `rows`, or back.
  void take(Run& run, const Part& part, const Tensor& fused, const Tensor& rows) const;
  void put(Run& run, const Part& part, const Tensor& rows, const Tensor& fused) const;
  void add_head_gradient(Run& run, const Tensor& dweights, std::int64_t row, Param& norm) const;

  ops::HeadLayout heads_;
  ops::RmsScale scale_;
  Param query_;
  Param key_;
};

}  // namespace atl::nn
