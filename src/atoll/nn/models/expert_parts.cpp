#include "atoll/nn/models/expert_parts.h"

#include <fmt/format.h>

#include "atoll/nn/mixture_of_experts.h"
#include "atoll/nn/mlp.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/parts.h"
#include "atoll/nn/models/tensor_split.h"
#include "atoll/nn/parallel_residual.h"

namespace atl::nn {

ExpertShape read_experts(ConfigReader& reader, const ExpertDefaults& defaults) {
  // transformers 5 writes the second name for families whose files had the first.
  const char* field = reader.contains("num_experts") ? "num_experts" : "num_local_experts";
  ExpertShape experts;
  experts.num_experts = reader.integer(field, defaults.num_experts);
  if (reader.integer("num_local_experts", experts.num_experts) != experts.num_experts) {
    throw reader.refused("num_local_experts", "and \"num_experts\" is another number");
  }
  experts.top_k = reader.integer("num_experts_per_tok", defaults.top_k);
  experts.balance_loss = reader.number("router_aux_loss_coef", defaults.balance_loss);
  constexpr std::int64_t kMost = 1 << 16;
  if (experts.num_experts < 1 || experts.num_experts > kMost) {
    throw reader.refused(field, fmt::format("and there are 1 to {} experts", kMost));
  }
  if (experts.top_k < 1 || experts.top_k > experts.num_experts) {
    throw reader.refused("num_experts_per_tok",
                         fmt::format("and there are {} experts", experts.num_experts));
  }
  if (!(experts.balance_loss >= 0)) {
    throw reader.refused("router_aux_loss_coef", "which would reward uneven loads");
  }
  // Whether transformers hands the router's logits out, and so adds its loss; moe.balance_loss says
  // what a run here does.
  reader.ignore({"output_router_logits"});
  return experts;
}

void validate_experts(const ModelConfig& config, const std::string& origin) {
  const ExpertShape& experts = config.experts;
  if (experts.intermediate_size < 1) {
    throw user_error("{}: the experts' intermediate size must be at least 1, not {}", origin,
                     experts.intermediate_size);
  }
  constexpr double kMaxElements = 1e13;  // as of other parameters: 40 TB in f32
  const double elements =
      3.0 * static_cast<double>(config.num_layers) * static_cast<double>(experts.num_experts) *
      static_cast<double>(config.hidden_size) * static_cast<double>(experts.intermediate_size);
  if (elements <= kMaxElements) return;
  throw user_error(
      "{}: {} experts of {} x {} in {} layers are {:.2g} parameters, beyond any machine", origin,
      experts.num_experts, config.hidden_size, experts.intermediate_size, config.num_layers,
      elements);
}

namespace {

// Blocks with experts: each has an equal part in the mean of their losses.
double count_expert_blocks(const ModelConfig& config) {
  double count = 0;
  for (std::int64_t i = 0; i < config.num_layers; ++i) count += config.experts.has_experts(i);
  return count;
}

// A matrix of every expert, or a bias, one below the other. Each part of it is a tensor in the
// files.
Param stacked(const ModelConfig& config, Dtype dtype, const std::string& at,
              std::initializer_list<const char*> parts, Shape part, double stddev) {
  const ExpertShape& experts = config.experts;
  Param param;
  for (std::int64_t e = 0; e < experts.num_experts; ++e) {
    for (const char* name : parts) {
      const auto row = static_cast<std::int64_t>(param.files.size()) * part.dim(0);
      const char* kind = part.rank() == 1 ? "bias" : "weight";
      param.files.push_back(
          {fmt::format("{}.{}.{}.{}", at, e, name, kind), row, part.dim(0), false});
    }
  }
  const auto count = static_cast<std::int64_t>(param.files.size());
  if (part.rank() == 1) {
    param.spec = {dtype, {count * part.dim(0)}};
    param.init = Init::zero();
  } else {
    param.spec = {dtype, {count * part.dim(0), part.dim(1)}};
    param.init = Init::normal(stddev);
    param.decay = true;
  }
  param.share_of_tokens =
      static_cast<double>(experts.top_k) / static_cast<double>(experts.num_experts);
  return param;
}

// Gradients stay zero, and whatever an optimizer makes of that moves nothing.
Param make_correction(const ModelConfig& config, const BuildOptions& options,
                      const ExpertNames& names, const std::string& at) {
  if (names.correction == nullptr) return {};
  Param correction =
      make_param(at + names.correction, {options.dtype, {config.experts.num_experts}}, Init::zero(),
                 /*decay=*/false);
  correction.is_router = true;
  correction.lr_scale = 0;
  return correction;
}

// The experts of every token are one MLP of their widths together.
std::unique_ptr<Layer> make_shared_experts(const ModelConfig& config, const BuildOptions& options,
                                           const TensorSplit& split, const ExpertNames& names,
                                           const std::string& at, double down_stddev) {
  const std::int64_t C = config.hidden_size;
  const std::int64_t F = names.num_shared * config.experts.intermediate_size;
  const std::string module = at + names.shared + ".";
  const auto linear = [&](const std::vector<LinearPart>& parts, std::int64_t in, double stddev) {
    return make_linear_params(options.dtype, parts, in, stddev, /*bias=*/false);
  };
  Param no_bias;
  Linear gate_up = split.mlp_in(
      linear({{module + names.gate, F}, {module + names.up, F}}, C, config.initializer_range),
      /*num_parts=*/2);
  Linear down = split.mlp_out(linear({{module + names.down, C}}, F, down_stddev), no_bias);
  return std::make_unique<GluMlp>(Glu::kSwiglu, std::move(gate_up), std::move(down),
                                  options.keep_all());
}

}  // namespace

std::unique_ptr<Layer> make_experts(const ModelConfig& config, const BuildOptions& options,
                                    const TensorSplit& split, const ExpertNames& names,
                                    const std::string& at, double down_stddev, ExpertLoad* load) {
  const ExpertShape& shape = config.experts;
  const std::int64_t C = config.hidden_size;
  const std::int64_t F = shape.intermediate_size;
  // Ranks that share products all have the router, and its gradient is the sum of theirs.
  const double sum_of = count_expert_blocks(config) * options.tensor_size;
  const ExpertOptions& chosen = options.experts;
  const double balance = chosen.balance_loss < 0 ? shape.balance_loss : chosen.balance_loss;
  Param router = make_param(at + names.router + ".weight", {options.dtype, {shape.num_experts, C}},
                            Init::normal(config.initializer_range), /*decay=*/true);
  router.is_router = true;
  Param gate_up = stacked(config, options.dtype, at + names.experts, {names.gate, names.up}, {F, C},
                          config.initializer_range);
  gate_up.name = at + "mlp.experts.gate_up.weight";
  Param down =
      stacked(config, options.dtype, at + names.experts, {names.down}, {C, F}, down_stddev);
  down.name = at + "mlp.experts.down.weight";
  MixtureOfExperts::Biases biases;
  if (names.has_bias) {
    Param of_router = make_param(at + names.router + ".bias", {options.dtype, {shape.num_experts}},
                                 Init::zero(), /*decay=*/false);
    of_router.is_router = true;
    biases.router = split.all(std::move(of_router));
    Param of_gate_up = stacked(config, options.dtype, at + names.experts, {names.gate, names.up},
                               {F}, /*stddev=*/0);
    of_gate_up.name = at + "mlp.experts.gate_up.bias";
    biases.gate_up = split.experts_in(std::move(of_gate_up));
    Param of_down =
        stacked(config, options.dtype, at + names.experts, {names.down}, {C}, /*stddev=*/0);
    of_down.name = at + "mlp.experts.down.bias";
    biases.down = split.experts_out(std::move(of_down));
  }
  ops::RouterForm router_form = names.router_form;
  router_form.normalize = shape.normalize;
  auto experts = std::make_unique<MixtureOfExperts>(
      MixtureOfExperts::Options{.num_experts = shape.num_experts,
                                .top_k = shape.top_k,
                                .router = router_form,
                                .balance_loss = balance / sum_of,
                                .z_loss = chosen.z_loss / sum_of,
                                .capacity_factor = chosen.capacity_factor,
                                .sequences = split.sequences(),
                                .device = options.device,
                                .swiglu_limit = names.swiglu_limit,
                                .adds_down_bias = options.tensor_rank == 0},
      split.all(std::move(router)), split.experts_in(std::move(gate_up)),
      split.experts_out(std::move(down)), load, split.token_dispatch(), std::move(biases),
      split.all(make_correction(config, options, names, at)));
  if (names.shared == nullptr) return split.branch(std::move(experts), {});
  auto both = std::make_unique<ParallelResidual>(
      std::move(experts), make_shared_experts(config, options, split, names, at, down_stddev),
      /*adds_x=*/false);
  return split.branch(std::move(both), {});
}

}  // namespace atl::nn
