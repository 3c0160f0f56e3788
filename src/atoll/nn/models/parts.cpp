#include "atoll/nn/models/parts.h"

#include <algorithm>

#include "atoll/nn/dropout.h"
#include "atoll/nn/models/config_reader.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/sizes.h"
#include "atoll/nn/recompute.h"
#include "atoll/nn/sequential.h"

namespace atl::nn {

Param make_param(std::string name, Spec spec, Init init, bool decay) {
  Param param;
  param.files = {{name, 0, spec.shape.dim(0), false}};
  param.name = std::move(name);
  param.spec = spec;
  param.init = init;
  param.decay = decay;
  return param;
}

LinearParams make_linear_params(Dtype dtype, const std::vector<LinearPart>& parts, std::int64_t in,
                                double stddev, bool bias, bool transposed) {
  LinearParams params;
  Param& weight = params.weight;
  Param& shift = params.bias;
  std::int64_t out = 0;
  for (const LinearPart& part : parts) {
    weight.files.push_back({part.name + ".weight", out, part.out, transposed});
    if (bias) shift.files.push_back({part.name + ".bias", out, part.out, false});
    weight.name += (weight.name.empty() ? "" : "+") + part.name;
    out += part.out;
  }
  if (bias) shift.name = weight.name + ".bias";
  weight.name += ".weight";
  weight.spec = {dtype, {out, in}};
  weight.init = Init::normal(stddev);
  weight.decay = true;
  shift.spec = {dtype, {out}};
  return params;
}

Linear make_linear(Dtype dtype, const std::vector<LinearPart>& parts, std::int64_t in,
                   double stddev, bool bias, bool transposed) {
  LinearParams params = make_linear_params(dtype, parts, in, stddev, bias, transposed);
  return Linear(std::move(params.weight), std::move(params.bias));
}

std::unique_ptr<Layer> make_dropout(const BuildOptions& options, int index) {
  return std::make_unique<Dropout>(
      options.dropout, index,
      ops::RowPart{options.tensor_size, options.tensor_rank, options.sequence_part()});
}

namespace {

std::unique_ptr<Layer> with_norm_and_dropout(std::unique_ptr<Layer> norm,
                                             std::unique_ptr<Layer> branch,
                                             const BuildOptions& options, int index) {
  std::vector<std::unique_ptr<Layer>> layers;
  if (norm != nullptr) layers.push_back(std::move(norm));
  layers.push_back(std::move(branch));
  if (options.dropout > 0) layers.push_back(make_dropout(options, index));
  return std::make_unique<Sequential>(std::move(layers), options.keep_all());
}

std::unique_ptr<Layer> with_recompute(std::unique_ptr<Layer> layer, const BuildOptions& options,
                                      int index) {
  const bool is_mlp = index % 2 == 0;
  if (!is_mlp || options.recompute != RecomputeMode::kSelective) return layer;
  return std::make_unique<Recompute>(std::move(layer));
}

}  // namespace

std::unique_ptr<Layer> make_residual(std::unique_ptr<Layer> norm, std::unique_ptr<Layer> branch,
                                     const BuildOptions& options, int index) {
  return with_recompute(std::make_unique<Residual>(with_norm_and_dropout(
                            std::move(norm), std::move(branch), options, index)),
                        options, index);
}

std::unique_ptr<Layer> make_branch(std::unique_ptr<Layer> norm, std::unique_ptr<Layer> branch,
                                   const BuildOptions& options, int index) {
  return with_recompute(with_norm_and_dropout(std::move(norm), std::move(branch), options, index),
                        options, index);
}

void validate(const ModelConfig& config, const std::string& origin) {
  const SizeNames& names = find_family(config.family, origin).sizes;
  const ops::HeadLayout& heads = config.heads;
  const auto positive = [&](const char* field, std::int64_t value) {
    if (value < 1) throw user_error("{}: {} must be at least 1, not {}", origin, field, value);
  };
  positive("vocab_size", config.vocab_size);
  positive(names.hidden_size, config.hidden_size);
  positive(names.num_layers, config.num_layers);
  positive(names.num_heads, heads.num_heads);
  positive(names.num_kv_heads, heads.num_kv_heads);
  positive(names.head_dim, heads.head_dim);
  positive(names.intermediate_size, config.intermediate_size);
  positive(names.max_positions, config.max_positions);
  if (heads.num_heads % heads.num_kv_heads != 0) {
    throw user_error("{}: {} ({}) must be a multiple of {} ({})", origin, names.num_heads,
                     heads.num_heads, names.num_kv_heads, heads.num_kv_heads);
  }
  if (!(config.rope_theta > 0) || !(config.norm_eps >= 0) || !(config.initializer_range >= 0)) {
    throw user_error(
        "{}: rope_theta must be above 0 and the norm's epsilon and initializer_range not below it; "
        "they are {}, {} and {}",
        origin, config.rope_theta, config.norm_eps, config.initializer_range);
  }
  // A Transformer of 1,000 layers is the deepest that was published (DeepNet, Wang et al. 2022).
  constexpr std::int64_t kMaxLayers = 1 << 12;
  if (config.num_layers > kMaxLayers) {
    throw user_error("{}: {} is {}, and atoll builds models of at most {} layers", origin,
                     names.num_layers, config.num_layers, kMaxLayers);
  }
  // 40 TB in f32; and every product the layers form stays within 63 bits.
  constexpr double kMaxElements = 1e13;
  constexpr std::int64_t kMaxCount = 1 << 20;
  const double elements = least_parameters(config);
  const double positions =
      static_cast<double>(config.max_positions) * static_cast<double>(config.hidden_size);
  if (elements + positions <= kMaxElements && heads.num_heads <= kMaxCount &&
      heads.head_dim <= kMaxCount) {
    return;
  }
  throw user_error("{}: a model of {:.2g} parameters is beyond any machine; {}", origin, elements,
                   size_list(config));
}

void read_token_ids(ConfigReader& reader, ModelConfig& config) {
  config.bos_token = reader.token_id("bos_token_id", config.vocab_size);
  config.eos_token = reader.token_id("eos_token_id", config.vocab_size);
  // These say nothing about the model's function.
  for (const char* field :
       {"pad_token_id", "unk_token_id", "sep_token_id", "decoder_start_token_id"}) {
    reader.token_id(field, config.vocab_size);
  }
}

void check_quantised(ConfigReader& reader) {
  const std::unique_ptr<ConfigReader> quantised = reader.object("quantization_config");
  if (quantised == nullptr) return;
  // Older files of bitsandbytes do not name it.
  const bool is_named = !quantised->is_null("quant_method");
  const bool is_old = quantised->contains("load_in_4bit") || quantised->contains("load_in_8bit");
  const std::string method =
      is_named ? quantised->text("quant_method") : (is_old ? "bitsandbytes" : "");
  for (const char* known : {"bitsandbytes", "gptq", "awq", "gguf", "mxfp4", "fp8"}) {
    if (method == known) return;
  }
  throw reader.refused(
      "quantization_config",
      "so the weights are quantised by a method that atoll does not read: it reads bitsandbytes "
      "(NF4, FP4, int8), GPTQ, AWQ, MXFP4, FP8 in blocks and the types of GGUF; give the model "
      "that was quantised, or dequantise it: transformers' model.dequantize() and "
      "save_pretrained()");
}

}  // namespace atl::nn
