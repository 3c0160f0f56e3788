#include "atoll/nn/models/sizes.h"

#include <fmt/format.h>

#include "atoll/nn/models/family.h"

namespace atl::nn {

std::string size_list(const ModelConfig& config) {
  const SizeNames& names = find_family(config.family, "a model").sizes;
  const ops::HeadLayout& heads = config.heads;
  const ExpertShape& experts = config.experts;
  std::string list = fmt::format(
      "vocab_size is {}, {} {}, {} {}, {} {}, {} {}, {} {} and {} {}", config.vocab_size,
      names.hidden_size, config.hidden_size, names.num_layers, config.num_layers, names.num_heads,
      heads.num_heads, names.head_dim, heads.head_dim, names.intermediate_size,
      config.intermediate_size, names.max_positions, config.max_positions);
  if (experts.num_experts > 0) {
    list += fmt::format("; {} experts of {}", experts.num_experts, experts.intermediate_size);
  }
  return list;
}

double least_parameters(const ModelConfig& config) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  const ops::HeadLayout& heads = config.heads;
  const ExpertShape& experts = config.experts;
  const auto hidden = static_cast<double>(config.hidden_size);
  const double attention =
      2 * hidden * product(heads.num_heads + heads.num_kv_heads, heads.head_dim);
  double mlps = 0;
  if (experts.num_experts == 0) {
    mlps = 2 * hidden * product(config.num_layers, config.intermediate_size);
  } else if (experts.dense_layers.empty()) {
    mlps = 3 * hidden * product(config.num_layers, experts.num_experts) *
           static_cast<double>(experts.intermediate_size);
  }
  return static_cast<double>(config.num_layers) * attention + mlps +
         product(config.vocab_size, config.hidden_size);
}

}  // namespace atl::nn
