#pragma once

// Everything a training run can be told. The keys, their ranges and their meaning are registered in
// config.cpp, an optimizer's options by its own file (optim/registry.h); docs/configuration.md is
// generated from there.

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/settings/settings.h"
#include "atoll/data/fields.h"
#include "atoll/nn/model.h"
#include "atoll/optim/settings.h"

namespace atl::train {

/// run.*
struct RunSettings {
  std::string dir;
  std::int64_t seed = 1;
  std::string on_signal = "end";
};

/// device.*
struct DeviceSettings {
  std::string kind = "cpu";
  std::int64_t index = -1;
  std::int64_t fake_order = 0;
  std::int64_t fake_memory_mib = 8192;
  std::int64_t fake_lost_after = 0;
  std::int64_t threads = 0;
  std::string bf16 = "auto";
  std::string attention = "own";
  std::int64_t attention_mib = 1280;
  bool graphs = false;
};

/// model.*: one of `from`, `config`, and the shape given by the other members.
struct ModelSettings {
  std::string from;
  std::string base;
  std::string held_as = "auto";
  std::string config;
  std::string family = "llama";
  std::int64_t hidden_size = 256;
  std::int64_t num_hidden_layers = 6;
  std::int64_t num_attention_heads = 8;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  bool tie_word_embeddings = true;
  double initializer_range = 0.02;
  std::int64_t sliding_window = 0;
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = true;
  std::string parametrisation = "standard";
  std::int64_t mup_base_width = 0;
  std::int64_t mup_base_head_dim = 0;

  /// True when the shape stands in the settings, not in an existing config.json.
  bool is_inline() const { return from.empty() && config.empty(); }
};

/// data.*: one of `text` and `shards`.
struct DataSettings {
  std::vector<std::string> text;
  std::vector<std::string> shards;
  std::vector<double> weights;
  std::string packing = "stream";
  std::string tokenizer;
  std::string new_tokenizer = "bpe";
  std::int64_t vocab_size = 4096;
  std::vector<std::string> special_tokens;
  std::string chat_template;
  std::string chat_train = "all";
  bool chat_keep_thinking = false;
  bool chat_literal_content = false;
  data::Fields fields;
  double held_out = 0.05;
  std::string documents = "file";
  std::string cache_dir;
  double cache_gib = 32;
};

/// train.*
struct LoopSettings {
  std::string objective = "next_token";
  std::int64_t steps = 1000;
  double epochs = 0;
  std::int64_t stop_after = 0;
  std::int64_t batch_size = 16;
  std::int64_t micro_batch = 8;
  std::int64_t context = 256;
  std::string dtype = "f32";
  std::string fp8 = "off";
  std::string recompute = "none";
  double dropout = 0;
  std::string on_nonfinite = "stop";
  bool exact = false;
  std::int64_t early_stop = 0;
  double early_stop_delta = 0;

  /// Whether the run learns from answers that are compared.
  bool has_preferences() const { return objective != "next_token"; }
  /// The step after which this start of the run ends: stop_after where that is given and earlier.
  std::int64_t last_step() const {
    return stop_after > 0 && stop_after < steps ? stop_after : steps;
  }
};

/// preference.*: how answers that are compared become a loss; see nn/preference_loss.h.
struct PreferenceSettings {
  std::string loss = "sigmoid";
  double beta = 0.1;
  double label_smoothing = 0;
  bool reference_free = false;
  double desirable_weight = 1;
  double undesirable_weight = 1;
};

/// moe.*: training of models with experts.
struct ExpertSettings {
  double balance_loss = -1;
  double z_loss = 0;
  double capacity_factor = 0;
};

/// dp.*: what data-parallel ranks share.
struct DataParallelSettings {
  std::int64_t zero = 0;
  std::int64_t shard = 0;
  double bucket_mib = 2;
  bool balance = false;
  std::string compress = "none";
  std::string compress_weights = "none";
  bool compress_feedback = true;
  std::int64_t compress_rank = 4;
  double compress_warmup = 0.15;
  std::int64_t compress_local_steps = 16;
  std::string compress_owed = "keep";
};

/// parallel.*: how ranks share the work of one model.
struct ParallelSettings {
  std::string layout = "manual";
  std::int64_t tp = 1;
  std::int64_t pp = 1;
  std::int64_t cp = 1;
  std::string cp_attention = "auto";
  std::int64_t ep = 1;
  std::string schedule = "1f1b";
  std::int64_t chunks = 0;

  /// Whether ranks have parts of the model, or of sequences.
  bool has_parts() const { return tp > 1 || pp > 1 || cp > 1 || ep > 1; }
};

/// comm.*
struct CommSettings {
  double timeout_s = 300;
  std::string algorithm = "auto";
  std::string gpu = "host";
  std::string gpu_sums = "ordered";
  std::int64_t check_every = 100;
};

/// optim.*
struct OptimSettings {
  std::string kind = "adamw";
  double lr = 1e-3;
  double min_lr_ratio = 0.1;
  std::string schedule = "cosine";
  std::int64_t warmup_steps = 0;
  double decay_fraction = 0.2;
  double clip = 1;
  /// The options of all optimizers, which their files declare; optim.kind reads its own.
  optim::OptionValues values = optim::default_values(optim::optimizer_kinds());
  std::string masters = "f32";
};

/// lora.*: low-rank adapters instead of full fine-tuning.
struct LoraSettings {
  std::int64_t rank = 0;
  double alpha = 16;
  std::vector<std::string> targets = {"all-linear"};
  bool rank_stabilized = false;
  double dropout = 0;
  std::vector<std::string> modules_to_save;
  std::vector<std::string> target_parameters;
  std::vector<double> trainable_token_indices;  ///< whole numbers
  std::vector<std::string> exclude;
  std::vector<std::string> rank_pattern;   ///< "PATTERN=RANK"
  std::vector<std::string> alpha_pattern;  ///< "PATTERN=ALPHA"
  std::string bias = "none";
  bool dora = false;
};

/// eval.*
struct EvalSettings {
  std::int64_t every = 0;
  std::int64_t max_tokens = 0;
  std::int64_t samples = 0;
  std::vector<std::string> prompts;
  std::int64_t sample_tokens = 64;
};

/// checkpoint.*
struct CheckpointSettings {
  std::int64_t every = 0;
  std::int64_t keep = 2;
  std::int64_t keep_best = 0;
  bool async = false;
};

/// offload.*: training state in a file.
struct OffloadSettings {
  std::string optimizer = "none";
  std::string params = "none";
  std::string dir;
  double piece_mib = 4;
};

/// log.*
struct LogSettings {
  std::int64_t every = 10;
  std::string format = "text";
  bool tensorboard = true;
  std::string trace;
  std::int64_t trace_after = 0;
  std::int64_t trace_steps = 50;
};

/// rl.*: reinforcement learning (`atoll rl`).
struct RlSettings {
  std::vector<std::string> prompts;
  std::int64_t group = 8;
  std::int64_t max_tokens = 0;
  std::int64_t slots = 16;
  std::vector<std::string> rewards;
  std::vector<double> weights;
  std::string answer;
  std::string regex;
  std::string schema;
  std::vector<std::string> program;
  double program_s = 10;
  std::int64_t program_mib = 1024;
  std::int64_t program_processes = 32;
  std::string advantage = "normalised";
  double clip_low = 0.2;
  double clip_high = 0.2;
  double kl = 0;
  std::int64_t async_steps = 0;

  /// Whether the recipe is one of reinforcement learning.
  bool is_given() const { return !prompts.empty(); }
};

/// alerts.*
struct AlertSettings {
  std::vector<std::string> off;
  std::string webhook;
};

/// metrics.*
struct MetricsSettings {
  std::string listen;
  std::string token_file;
  std::string certificate;
  std::string key;
};

/// launch.*
struct LaunchSettings {
  bool replicate = false;
  std::int64_t replicate_every = 1;
};

/// sync.*: how the replicas of one island are kept together, where parameters are on servers.
struct SyncSettings {
  std::string mode = "allreduce";
  std::string consistency = "bsp";
  std::int64_t staleness = 3;
  double compensation = 0;
  double elasticity = 0;
  std::int64_t period = 10;
  std::int64_t servers = 1;
  std::int64_t replicas = 1;
  std::int64_t workers = 1;
  std::int64_t worker = 0;
  std::string addresses;
  std::string transport = "grpc";
  std::string identity;
  std::string secret;
  double disk_s = 1;
};

/// island.*: this island, where a run has several.
struct IslandSettings {
  std::string coordinator;
  std::string name;
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string identity;
  std::string secret;
};

/// outer.*: what islands do together; the same on all of them.
struct OuterSettings {
  std::int64_t islands = 0;
  std::string algorithm = "diloco";
  std::int64_t inner_steps = 100;
  std::int64_t fragments = 1;
  std::int64_t overlap = 0;
  double merge = 0;
  std::string optimizer = "nesterov";
  double lr = 0;
  double momentum = 0.9;
  std::string codec = "f32";
  std::int64_t quorum = 0;
  double grace_s = 5;
  std::string data = "shared";
  std::string async_momentum = "delayed";
  std::string policy = "fixed";
  std::int64_t min_inner_steps = 0;
  std::int64_t max_inner_steps = 0;
  double qsr_alpha = 0;
  double round_mb = 0;
  double day_mb = 0;
};

/// The settings of one run, by group.
struct TrainConfig {
  RunSettings run;
  DeviceSettings device;
  ModelSettings model;
  DataSettings data;
  LoopSettings train;
  PreferenceSettings preference;
  ExpertSettings moe;
  DataParallelSettings dp;
  ParallelSettings parallel;
  CommSettings comm;
  LaunchSettings launch;
  SyncSettings sync;
  IslandSettings island;
  OuterSettings outer;
  OptimSettings optim;
  LoraSettings lora;
  RlSettings rl;
  EvalSettings eval;
  CheckpointSettings checkpoint;
  OffloadSettings offload;
  LogSettings log;
  AlertSettings alerts;
  MetricsSettings metrics;
};

/// Registers every key of `config`, which must outlive the result and stay where it is.
Settings make_settings(TrainConfig& config);

/// Checks what one key alone cannot show: that data and model come from one source each, that
/// sizes divide, that the schedule fits into the run. Throws Error(kUser) naming keys, values,
/// where these come from, and a fix. `settings` are those of `config`.
void validate(const TrainConfig& config, const Settings& settings);

/// The model that model.* describes, with zeros resolved: as many key-value heads as heads,
/// head_dim = hidden / heads, the family's intermediate size, train.context positions. Throws
/// Error(kUser) when the sizes do not fit together. For configurations whose model is_inline().
nn::ModelConfig inline_model(const TrainConfig& config, std::int64_t vocab_size,
                             std::int64_t eos_token = -1);

}  // namespace atl::train
