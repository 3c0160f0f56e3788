#pragma once

// What families whose blocks have experts share.

#include <memory>
#include <string>

#include "atoll/nn/expert_load.h"
#include "atoll/nn/model.h"
#include "atoll/ops/routing/router_form.h"

namespace atl::nn {

class ConfigReader;
class TensorSplit;

/// What a family's files call a block's experts: "<block><router>.weight" and
/// "<block><experts>.<number>.<gate>.weight", and ".bias" where there are biases; and what its
/// blocks have that the model's shape does not say.
struct ExpertNames {
  const char* router = "mlp.gate";
  const char* experts = "mlp.experts";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  bool has_bias = false;    ///< of the router and of all products
  double swiglu_limit = 0;  ///< see MixtureOfExperts::Options
  /// How choices and weights are made, but for whether weights are divided by their sum, which
  /// the model's shape says.
  ops::RouterForm router_form = {};
  /// The whole name of what is added to scores to choose by; null: nothing is.
  const char* correction = nullptr;
  /// Experts that every token goes through, "<shared>.<gate>.weight", so many of the others' width
  /// side by side; null: there are none.
  const char* shared = nullptr;
  std::int64_t num_shared = 0;
};

/// What transformers takes for fields that a config.json leaves out.
struct ExpertDefaults {
  std::int64_t num_experts = 0;
  std::int64_t top_k = 0;
  double balance_loss = 0.001;
};

/// Reads how many experts there are, how many a token has, and "router_aux_loss_coef". Throws
/// Error(kUser) naming the field for numbers that do not fit together.
ExpertShape read_experts(ConfigReader& reader, const ExpertDefaults& defaults);

/// Throws Error(kUser) when there are more parameters in the experts than any machine holds.
void validate_experts(const ModelConfig& config, const std::string& origin);

/// The layer in place of a block's MLP, whose parameters' names begin with `at`, with the experts
/// that `split` gives this rank. The products that end the branch start with `down_stddev`.
std::unique_ptr<Layer> make_experts(const ModelConfig& config, const BuildOptions& options,
                                    const TensorSplit& split, const ExpertNames& names,
                                    const std::string& at, double down_stddev, ExpertLoad* load);

}  // namespace atl::nn
