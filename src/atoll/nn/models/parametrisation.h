#pragma once

// How initial values and learning rates follow a model's width.

#include "atoll/nn/models/parts.h"

namespace atl::nn {

/// The maximal update parametrisation (muP; Yang et al. 2022, "Tensor Programs V", table 8), where
/// the options name a base width: with m = hidden_size / base, hidden matrices start sqrt(m) times
/// smaller and learn m times slower, logits are divided by m, and attention's scores by head_dim
/// instead of its root. At the base width everything is as in the standard parametrisation, which
/// this is where the options name none.
///
/// Layers compute the same function as ever. A factor c on a parameter is the same, under an
/// optimizer that does not see the size of gradients, as c times its initial values and c times its
/// learning rate (there, the symmetry of abc-parametrisations). So the logits' 1 / m is in the
/// final norm's scale, the scores' sqrt(base / head_dim) in the queries' weights, and files hold
/// what others read.
class Parametrisation {
 public:
  /// Throws Error(kUser) for a model with experts, for which no rule is built.
  Parametrisation(const ModelConfig& config, const BuildOptions& options);

  /// A product within a block.
  LinearParams hidden(LinearParams params) const;
  /// The product that makes queries, which are its first rows, keys and values.
  LinearParams query_key_value(LinearParams params) const;
  /// The scale of a norm over each query head. Norms before it leave the projection no say.
  Param query_norm(Param scale) const;
  /// A scale or shift of the final norm.
  Param final_norm(Param param) const;

 private:
  double width_ = 1;    // over the base width
  double queries_ = 1;  // factor on queries
  std::int64_t query_width_ = 0;
  bool has_query_norm_ = false;
};

}  // namespace atl::nn
