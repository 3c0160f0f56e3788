#include "atoll/train/options.h"

#include <algorithm>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/paths.h"
#include "atoll/base/quantity.h"
#include "atoll/ckpt/checkpoint.h"
#include "atoll/ckpt/checkpoint_paths.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/ops/bf16_arithmetic.h"
#include "atoll/ops/cuda/attention_cudnn.h"
#include "atoll/ops/gpu_attention.h"
#include "atoll/train/checkpointing.h"
#include "atoll/train/config_compress.h"
#include "atoll/train/config_device.h"
#include "atoll/train/config_experts.h"
#include "atoll/train/config_offload.h"

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

// Here rather than where it is first needed: beside shards, or texts without messages, nothing else
// would look.
void check_chat_template(const fs::path& path) {
  if (path.empty() || file_exists(path)) return;
  throw user_error("data.chat_template is {}, {}", path.string(),
                   directory_exists(path) ? "a directory; name the Jinja file in it"
                                          : "and there is no such file");
}

// "4 ranks"; "4 data-parallel ranks" where there are others.
std::string counted_ranks(const TrainConfig& config, int num_ranks) {
  const train::ParallelSettings& parallel = config.parallel;
  const bool has_others = parallel.tp * parallel.pp * parallel.cp * parallel.ep > 1;
  return counted(num_ranks, has_others ? "data-parallel rank" : "rank");
}

Error too_few_micro_batches(const TrainConfig& config, int num_ranks) {
  const LoopSettings& train = config.train;
  std::string remedy;
  if (train.batch_size >= num_ranks) {  // the same batch, in smaller passes
    std::int64_t fitting = train.batch_size / num_ranks;
    while (train.batch_size % fitting != 0) --fitting;
    remedy = fmt::format("--train.micro_batch={} or ", fitting);
  }
  return user_error(
      "train.batch_size = {} makes {} of train.micro_batch = {}, and each of {} needs one; give "
      "{}--train.batch_size={}",
      train.batch_size, counted(train.batch_size / train.micro_batch, "micro-batch"),
      train.micro_batch, counted_ranks(config, num_ranks), remedy, num_ranks * train.micro_batch);
}

}  // namespace

optim::OptimizerOptions optimizer_options(const OptimSettings& settings) {
  return {.kind = settings.kind,
          .values = optim::values_for(optim::find_optimizer(settings.kind), settings.values),
          .peak_lr = settings.lr,
          .masters = optim::masters(settings.masters)};
}

namespace {

// Ranks that share experts work on each other's tokens: they take as many passes.
void check_even_for_experts(const TrainConfig& config, std::int64_t micro_batches) {
  const std::int64_t e = config.parallel.ep;
  const std::int64_t over = micro_batches % e;
  if (over == 0) return;
  const std::int64_t nearest = micro_batches + (2 * over < e ? -over : e - over);
  throw user_error(
      "train.batch_size = {} makes {} of train.micro_batch = {}, which groups of parallel.ep = {} "
      "ranks cannot share evenly; the nearest that works is --train.batch_size={}",
      config.train.batch_size, counted(micro_batches, "micro-batch"), config.train.micro_batch, e,
      nearest * config.train.micro_batch);
}

}  // namespace

parallel::DataParallelOptions data_parallel_options(const TrainConfig& config, int data_ranks,
                                                    int rank) {
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (!config.train.exact && micro_batches < data_ranks) {
    throw too_few_micro_batches(config, data_ranks);
  }
  check_even_for_experts(config, micro_batches);
  const auto experts = static_cast<int>(config.parallel.ep);
  const int num_ranks = data_ranks / experts;
  const auto shard = config.dp.shard == 0 ? num_ranks : static_cast<int>(config.dp.shard);
  if (num_ranks % shard != 0) {
    throw user_error("{} cannot be cut into groups of dp.shard = {}; choose a divisor",
                     counted_ranks(config, num_ranks), shard);
  }
  if (shard < num_ranks && config.dp.zero == 0) {
    throw user_error(
        "dp.shard = {} says how many ranks share a copy, and dp.zero = 0 shares "
        "nothing; set dp.zero to 1, 2 or 3, or leave dp.shard out",
        shard);
  }
  if (shard < num_ranks && config.train.exact) {
    throw user_error(
        "train.exact sums gradients over all ranks in one order, which several copies "
        "(dp.shard = {} of {} ranks) do not; leave dp.shard out",
        shard, num_ranks);
  }
  if (shard < num_ranks && config.launch.replicate) {
    throw user_error(
        "launch.replicate copies the shares of ranks that share one copy, and dp.shard "
        "= {} of {} ranks makes several; leave one of them out",
        shard, num_ranks);
  }
  parallel::DataParallelOptions options;
  options.zero = static_cast<parallel::Zero>(config.dp.zero);
  options.num_ranks = shard;
  options.rank = rank / experts % shard;
  options.replicas = num_ranks / shard;
  options.exact = config.train.exact;
  options.rounds = (micro_batches + data_ranks - 1) / data_ranks;
  if (config.dp.balance)
    options.rounds = std::max<std::int64_t>(options.rounds, micro_batches - num_ranks + 1);
  options.bucket_bytes = static_cast<std::int64_t>(config.dp.bucket_mib * 0x1p20);
  options.whole_matrices = optim::find_optimizer(config.optim.kind).whole_matrices;
  return options;
}

int data_parallel_ranks(const TrainConfig& config, int num_ranks) {
  const auto tensor = static_cast<int>(config.parallel.tp);
  if (num_ranks % tensor != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.tp = {}; give a multiple of {} with -n, or "
        "another "
        "parallel.tp (1: each rank has whole products)",
        counted(num_ranks, "rank"), tensor, tensor);
  }
  const auto stages = static_cast<int>(config.parallel.pp);
  if (num_ranks / tensor % stages != 0) {
    throw user_error(
        "{} cannot be cut into pipelines of parallel.pp = {}; start a multiple of {}, or choose a "
        "divisor of {}",
        counted(num_ranks, "rank"), stages, stages * tensor, num_ranks / tensor);
  }
  const auto context = static_cast<int>(config.parallel.cp);
  if (num_ranks / tensor / stages % context != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.cp = {}; start a multiple of {}, or choose a "
        "divisor "
        "of {}",
        counted(num_ranks, "rank"), context, context * stages * tensor,
        num_ranks / tensor / stages);
  }
  const auto experts = static_cast<int>(config.parallel.ep);
  const int data_ranks = num_ranks / tensor / stages / context;
  if (data_ranks % experts != 0) {
    throw user_error(
        "{} cannot be cut into groups of parallel.ep = {}; start a multiple of {}, or choose a "
        "divisor of {}",
        counted(num_ranks, "rank"), experts, experts * context * stages * tensor, data_ranks);
  }
  return data_ranks;
}

namespace {

// Where a rank is, from the axis whose neighbours are neighbours outwards: see axes_of in
// train/ranks.cpp.
struct Place {
  int tensor, expert, stage;
  int context;  // the part of the sequences
  int sharing;  // among those that have the same part of the model and of the sequences
};

Place place_of(const TrainConfig& config, int rank) {
  Place place = {};
  const auto take = [&](std::int64_t size) {
    const auto at = static_cast<int>(rank % size);
    rank /= static_cast<int>(size);
    return at;
  };
  place.tensor = take(config.parallel.tp);
  place.expert = take(config.parallel.ep);
  place.stage = take(config.parallel.pp);
  place.context = take(config.parallel.cp);
  place.sharing = rank;
  return place;
}

}  // namespace

parallel::DataParallelOptions sharing_options(const TrainConfig& config, int num_ranks, int rank) {
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  const auto context = static_cast<int>(config.parallel.cp);
  const auto experts = static_cast<int>(config.parallel.ep);
  const Place place = place_of(config, rank);
  parallel::DataParallelOptions options =
      data_parallel_options(config, data_ranks, place.sharing * experts + place.expert);
  // Each adds a part of every gradient, as a data-parallel rank does.
  options.num_ranks *= context;
  options.rank = options.rank * context + place.context;
  if (config.parallel.pp > 1) options.rounds = 1;  // of all micro-batches
  options.compression = compression_options(config, options.num_ranks * options.replicas);
  return options;
}

namespace {

parallel::PipelineOptions pipeline_options(const TrainConfig& config, int data_ranks, int place) {
  const std::int64_t micro_batches = config.train.batch_size / config.train.micro_batch;
  if (micro_batches % data_ranks != 0) {
    throw user_error(
        "train.batch_size = {} makes {} of train.micro_batch = {}, which {} pipelines cannot share "
        "evenly; with parallel.pp = {}, make it a multiple of {}",
        config.train.batch_size, counted(micro_batches, "micro-batch"), config.train.micro_batch,
        data_ranks, config.parallel.pp, data_ranks * config.train.micro_batch);
  }
  return {.num_ranks = static_cast<int>(config.parallel.pp),
          .rank = place,
          .schedule = config.parallel.schedule,
          .chunks = static_cast<int>(config.parallel.chunks),
          .micro_batches = micro_batches / data_ranks};
}

}  // namespace

void check_ranks(const TrainConfig& config, int num_ranks) {
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  data_parallel_options(config, data_ranks, 0);
  if (config.parallel.pp > 1) pipeline_options(config, data_ranks, 0);
}

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

StateOptions state_options(const TrainConfig& config, std::int64_t vocab_size,
                           std::int64_t eos_token, int num_ranks, int rank) {
  StateOptions options;
  const int data_ranks = data_parallel_ranks(config, num_ranks);
  const auto tensor_size = static_cast<int>(config.parallel.tp);
  const auto pipeline_size = static_cast<int>(config.parallel.pp);
  const auto expert_size = static_cast<int>(config.parallel.ep);
  const Place place = place_of(config, rank);
  if (!config.model.from.empty()) {
    const fs::path directory = model_dir::find_model(config.model.from);
    if (config.parallel.tp > 1 && model_dir::holds_adapter(directory)) {
      throw user_error(
          "parallel.tp = {}: {} is an adapter, and ranks that share products cannot merge it; "
          "merge "
          "it before with `atoll export --merge`",
          config.parallel.tp, directory.string());
    }
    options.model = model_dir::read_model_config(directory);
  } else if (!config.model.config.empty()) {
    options.model = nn::parse_config(read_file(config.model.config), config.model.config);
  } else {
    options.model = inline_model(config, vocab_size, eos_token);
  }
  if (options.model.vocab_size < vocab_size) {
    throw user_error(
        "the tokenizer has {} tokens and the model's config.json says vocab_size {}; use the "
        "tokenizer that belongs to the model, or a smaller data.vocab_size",
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
    options.lora = {.rank = config.lora.rank,
                    .alpha = config.lora.alpha,
                    .targets = config.lora.targets,
                    .rank_stabilized = config.lora.rank_stabilized};
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
  options.folds_owed = config.dp.compress_owed == "fold";
  options.offload = offload_options(config, num_ranks);
  return options;
}

namespace {

// The corpus that the newest checkpoint was trained on; empty when none says so.
std::string trained_corpus(const fs::path& checkpoints, const std::vector<std::int64_t>& steps) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return read_position(checkpoints / ckpt::checkpoint_name(*step)).corpus_hash;
    } catch (const Error&) {
      continue;  // whoever loads it says that it is damaged
    }
  }
  return "";
}

}  // namespace

CorpusOptions corpus_options(const TrainConfig& config) {
  CorpusOptions options;
  options.shards.assign(config.data.shards.begin(), config.data.shards.end());
  options.text.assign(config.data.text.begin(), config.data.text.end());
  options.tokenizer = config.data.tokenizer;
  if (options.tokenizer.empty() && !config.model.from.empty()) {
    options.tokenizer = model_dir::find_model(config.model.from);
  }
  options.new_tokenizer = config.data.new_tokenizer;
  options.vocab_size = config.data.vocab_size;
  options.special_tokens = config.data.special_tokens;
  options.chat_template = config.data.chat_template;
  check_chat_template(options.chat_template);
  options.fields = config.data.fields;
  options.shard_cache = config.data.cache_dir;
  options.shard_cache_bytes = static_cast<std::uint64_t>(config.data.cache_gib * 0x1p30);
  options.held_out = config.data.held_out;
  options.documents = config.data.documents;
  options.cache = fs::path(config.run.dir) / "data";
  const fs::path checkpoints = fs::path(config.run.dir) / "checkpoints";
  const std::vector<std::int64_t> steps = ckpt::checkpoint_steps(checkpoints);
  options.cache_is_final = !steps.empty();
  options.trained_hash = trained_corpus(checkpoints, steps);
  return options;
}

void require_held_out(const TrainConfig& config, const PreparedCorpus& corpus) {
  if (config.eval.every == 0 || corpus.has_held_out()) return;
  throw user_error("eval.every is {} and no text is held out; set data.held_out or eval.every=0",
                   config.eval.every);
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
