#include "atoll/train/model/options.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/model_dir/stored_weights.h"
#include "atoll/ops/attention/cuda_cudnn.h"
#include "atoll/ops/attention/gpu_attention.h"
#include "atoll/ops/matmul/bf16_arithmetic.h"
#include "atoll/train/config/device.h"
#include "atoll/train/config/experts.h"
#include "atoll/train/config/lora.h"
#include "atoll/train/config/optimizer.h"
#include "atoll/train/config/preference.h"
#include "atoll/train/model/new_tokens.h"
#include "atoll/train/ranks/sharing.h"

namespace atl::train {

namespace fs = std::filesystem;

namespace {

nn::RecomputeMode recompute_mode(const std::string& name) {
  if (name == "full") return nn::RecomputeMode::kFull;
  return name == "selective" ? nn::RecomputeMode::kSelective : nn::RecomputeMode::kNone;
}

std::optional<ops::Fp8Scaling> fp8_scaling(const std::string& name) {
  if (name == "off") return std::nullopt;
  return name == "tensor" ? ops::Fp8Scaling::kTensor : ops::Fp8Scaling::kBlocks;
}

}  // namespace

namespace {

nn::ContextAttention context_attention(const std::string& name) {
  if (name == "ulysses") return nn::ContextAttention::kUlysses;
  return name == "ring" ? nn::ContextAttention::kRing : nn::ContextAttention::kAuto;
}

// `build` says which attention ranks that share sequences have.
void check_sequence_length(const TrainConfig& config, const nn::BuildOptions& build) {
  const std::int64_t parts = build.sequence_part().divisor();
  const std::int64_t length = config.train.context;
  if (length % parts == 0) return;
  // Ranks that share products share a rank's rows too.
  const std::int64_t step = std::lcm(parts, config.parallel.cp * config.parallel.tp);
  throw user_error(
      "train.context = {} cannot be cut into {} equal parts, of which ring attention gives each of "
      "parallel.cp = {} ranks two; the nearest that can is --train.context={}",
      length, parts, config.parallel.cp, std::max(step, (length + step / 2) / step * step));
}

}  // namespace

namespace {

// What offload.* means for a rank of so many. Throws Error(kUser) where ranks and settings do not
// fit.
OffloadChoice offload_options(const TrainConfig& config, int num_ranks) {
  OffloadChoice choice;
  choice.optimizer = config.offload.optimizer != "none";
  choice.params = config.offload.params == "file";
  if (choice.params && num_ranks > 1 && config.dp.zero != 3) {
    throw user_error(
        "offload.params = file puts a rank's part of the parameters into a file, and with dp.zero "
        "= {} each of {} has all of them; set dp.zero=3",
        config.dp.zero, counted(num_ranks, "rank"));
  }
  if (config.offload.optimizer == "file") {
    choice.directory = config.offload.dir.empty() ? config.run.dir : config.offload.dir;
  }
  // Whole blocks of the file: pieces then begin where its pages do.
  constexpr std::int64_t kBlock = 8192;
  const auto elements = static_cast<std::int64_t>(config.offload.piece_mib * 0x1p20 / 4);
  choice.piece_elements = std::max(elements / kBlock, std::int64_t{1}) * kBlock;
  return choice;
}

// One target with what a name of modules never has is a pattern.
bool is_pattern(const std::vector<std::string>& targets) {
  return targets.size() == 1 &&
         targets.front().find_first_of("*+?()[]{}|^$\\") != std::string::npos;
}

nn::LoraOptions lora_options(const LoraSettings& settings) {
  nn::LoraOptions lora = {.rank = settings.rank,
                          .alpha = settings.alpha,
                          .targets = settings.targets,
                          .rank_stabilized = settings.rank_stabilized,
                          .excluded = settings.exclude,
                          .ranks = rank_patterns(settings.rank_pattern),
                          .alphas = alpha_patterns(settings.alpha_pattern),
                          .modules_to_save = settings.modules_to_save,
                          .target_parameters = settings.target_parameters,
                          .dropout = settings.dropout,
                          .use_dora = settings.dora};
  if (!settings.trainable_token_indices.empty()) {
    lora.tokens = {{"", trained_tokens(settings.trainable_token_indices)}};
  }
  if (settings.bias == "all") lora.bias = nn::LoraBias::kAll;
  if (settings.bias == "lora_only") lora.bias = nn::LoraBias::kAdapted;
  if (is_pattern(lora.excluded)) {
    lora.excluded_pattern = lora.excluded.front();
    lora.excluded.clear();
  }
  if (is_pattern(lora.targets)) {
    lora.target_pattern = lora.targets.front();
    lora.targets.clear();
  }
  return lora;
}

// Beside what weights cannot stay in the bits of their files.
void refuse_stored(const TrainConfig& config) {
  const auto refuse = [](std::string_view setting, std::string_view remedy) {
    throw user_error(
        "{}: weights in the bits of their files (model.held_as) do not go with it; {}, or use "
        "model.held_as=wide",
        setting, remedy);
  };
  if (config.parallel.pp > 1) {
    refuse(fmt::format("parallel.pp = {}", config.parallel.pp), "take data-parallel ranks");
  }
  if (config.train.fp8 != "off") {
    refuse(fmt::format("train.fp8 = {}", config.train.fp8), "leave it off");
  }
}

// What of model.from stays in the bits of its files, of the model that is built.
std::function<void(nn::Model&)> stored_choice(const TrainConfig& config,
                                              const model_dir::ModelPath& directory) {
  const std::string& how = config.model.held_as;
  if (how == "wide") return {};
  const std::string quantisation = model_dir::quantisation_of(directory);
  if (how == "auto" && quantisation.empty()) return {};
  if (config.lora.rank == 0) {
    const std::string what =
        quantisation.empty() ? std::string() : fmt::format(" (model.from is {})", quantisation);
    throw user_error(
        "weights in the bits of their files cannot be trained{}: train an adapter beside them "
        "(lora.rank=16), or all of them in train.dtype (model.held_as=wide)",
        what);
  }
  refuse_stored(config);
  const auto which =
      how == "stored" ? model_dir::StoredWeights::kAll : model_dir::StoredWeights::kQuantised;
  return [directory, which](nn::Model& model) {
    model_dir::keep_stored(directory, which, /*freezes=*/false, model);
    refuse_packed_new_tokens(directory, model);
  };
}

}  // namespace

StateOptions state_options(const TrainConfig& config, std::int64_t vocab_size,
                           std::int64_t eos_token, int num_ranks, int rank) {
  StateOptions options;
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  const auto tensor_size = static_cast<int>(config.parallel.tp);
  const auto pipeline_size = static_cast<int>(config.parallel.pp);
  const auto expert_size = static_cast<int>(config.parallel.ep);
  const RankPlace place = place_of(config, rank);
  if (!config.model.from.empty()) {
    const model_dir::ModelPath directory =
        model_dir::find_model(config.model.from, config.model.base);
    if (config.parallel.tp > 1 && model_dir::holds_adapter(directory)) {
      throw user_error(
          "parallel.tp = {}: {} is an adapter, and ranks that share products cannot merge it; "
          "merge "
          "it before with `atoll export --merge`",
          config.parallel.tp, directory.string());
    }
    options.model = with_new_tokens(config, vocab_size, directory);
    options.keep_stored = stored_choice(config, directory);
  } else if (!config.model.config.empty()) {
    options.model = nn::parse_config(read_file(config.model.config), config.model.config);
  } else {
    options.model = inline_model(config, vocab_size, eos_token);
  }
  if (options.model.vocab_size < vocab_size) {
    throw user_error(
        "the tokenizer has {} tokens and the model's config.json says vocab_size {}; use the "
        "tokenizer that belongs to the model, or a smaller data.vocab_size (data.special_tokens "
        "adds tokens, and rows for them)",
        vocab_size, options.model.vocab_size);
  }
  if (options.model.max_positions < config.train.context) {
    throw user_error("train.context is {} and the model has {} positions; lower train.context",
                     config.train.context, options.model.max_positions);
  }
  options.build = {.dtype = config.train.dtype == "bf16" ? Dtype::kBf16 : Dtype::kF32,
                   .max_positions = config.train.context,
                   .recompute = recompute_mode(config.train.recompute),
                   .mup_base_width = config.model.mup_base_width,
                   .mup_base_head_dim = config.model.mup_base_head_dim,
                   .dropout = config.train.dropout,
                   .experts = expert_options(config.moe, options.model),
                   .tensor_size = tensor_size,
                   .tensor_rank = place.tensor,
                   .context_size = static_cast<int>(config.parallel.cp),
                   .context_rank = place.context,
                   .context_attention = context_attention(config.parallel.cp_attention),
                   .expert_size = expert_size,
                   .expert_rank = place.expert,
                   .device = kind_of(config.device)};
  options.build = nn::with_context_attention(options.model, options.build);
  check_sequence_length(config, options.build);
  options.optimizer = optimizer_options(config.optim);
  if (config.lora.rank > 0) {
    options.lora = lora_options(config.lora);
    check_trained_new_tokens(config, options.model, *options.lora);
  }
  options.fp8 = fp8_scaling(config.train.fp8);
  options.micro_batch = config.train.micro_batch;
  options.context = config.train.context;
  options.data_parallel = sharing_options(config, num_ranks, rank);
  // Servers add up what lanes push; a worker has the gradient of one at a time.
  if (config.sync.mode == "ps") options.data_parallel = {};
  if (pipeline_size > 1) {
    options.pipeline = pipeline_options(config, data_ranks, place.stage);
  }
  options.replicate = config.launch.replicate && !config.parallel.has_parts();
  options.folds_residual = config.dp.compress_owed == "fold";
  options.offload = offload_options(config, num_ranks);
  if (config.train.has_preferences()) options.preference = preference_options(config);
  return options;
}

void require_chosen_layout(const TrainConfig& config, const std::string& remedy) {
  if (config.parallel.layout != "auto") return;
  throw user_error("parallel.layout = auto is nothing that can be planned here; {}", remedy);
}

void apply_bf16(const TrainConfig& config) {
  if (config.device.bf16 == "auto") return ops::reset_bf16_arithmetic();
  ops::set_bf16_arithmetic(ops::bf16_arithmetic_named(config.device.bf16));
}

void apply_attention(const TrainConfig& config) {
  ops::set_gpu_attention(ops::gpu_attention_named(config.device.attention),
                         static_cast<std::size_t>(config.device.attention_mib) << 20);
}

void check_attention(const TrainConfig& config, const nn::ModelConfig& model) {
  if (config.device.attention != "cudnn") return;
  const std::int64_t length = config.train.context;
  std::string problem;
  for (const bool is_backward : {false, true}) {
    const char* reason = ops::cuda::cudnn_declines(model.heads, length, is_backward);
    if (reason != nullptr && problem.empty()) problem = reason;
  }
  bool all_windows = true;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::int64_t window = model.window(layer);
    all_windows = all_windows && window > 0 && window < length;
  }
  if (all_windows) problem = "every layer has a sliding window";
  if (problem.empty()) return;
  throw user_error(
      "device.attention = cudnn cannot serve this run, of {} heads of {} elements and sequences of "
      "{}: {}; use device.attention=own{}",
      model.heads.num_heads, model.heads.head_dim, length, problem,
      problem.starts_with("the workspace") ? ", or a larger device.attention_mib" : "");
}

}  // namespace atl::train
