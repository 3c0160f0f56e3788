#include "atoll/nn/models/parametrisation.h"

#include <cmath>

#include "atoll/base/error.h"

namespace atl::nn {

Parametrisation::Parametrisation(const ModelConfig& config, const BuildOptions& options)
    : query_width_(config.heads.query_width()), has_query_norm_(config.qk_norm) {
  if (options.mup_base_width == 0) return;
  if (config.experts.num_experts > 0) {
    throw user_error(
        "model.parametrisation is mup, and the model, of the family {}, has experts, for which "
        "atoll has no rule; leave it out",
        config.family);
  }
  width_ = static_cast<double>(config.hidden_size) / static_cast<double>(options.mup_base_width);
  queries_ = std::sqrt(static_cast<double>(options.mup_base_head_dim) /
                       static_cast<double>(config.heads.head_dim));
}

LinearParams Parametrisation::hidden(LinearParams params) const {
  params.weight.init.scale /= std::sqrt(width_);
  params.weight.lr_scale /= width_;
  return params;  // a bias has no inputs to add up
}

LinearParams Parametrisation::query_key_value(LinearParams params) const {
  if (queries_ != 1 && !has_query_norm_) {
    for (Param* param : {&params.weight, &params.bias}) {
      param->query_rows = query_width_;
      param->query_scale = queries_;
    }
  }
  return hidden(std::move(params));
}

Param Parametrisation::query_norm(Param scale) const {
  scale.init.scale *= queries_;
  scale.lr_scale *= queries_;
  return scale;
}

Param Parametrisation::final_norm(Param param) const {
  param.init.scale /= width_;
  param.lr_scale /= width_;
  return param;
}

}  // namespace atl::nn
