#include "atoll/train/config/aliases.h"

#include "atoll/nn/models/family.h"

namespace atl::train {

namespace {

void add_names_of_models(Settings& s) {
  s.known_elsewhere_as("model.from", {"model", "model_name", "model_name_or_path", "base_model",
                                      "pretrained", "init_from", "hf_model", "checkpoint_path"});
  s.known_elsewhere_as("model.family", {"arch", "architecture", "model_type"});
  s.known_elsewhere_as("model.hidden_size",
                       {"n_embd", "d_model", "dim", "n_embed", "embed_dim", "width"});
  s.known_elsewhere_as("model.num_hidden_layers",
                       {"n_layer", "n_layers", "num_layers", "layers", "depth"});
  s.known_elsewhere_as("model.num_attention_heads",
                       {"n_head", "n_heads", "num_heads", "heads", "attention_heads"});
  s.known_elsewhere_as("model.num_key_value_heads",
                       {"n_kv_heads", "n_kv_head", "num_kv_heads", "kv_heads", "num_query_groups"});
  s.known_elsewhere_as("model.intermediate_size",
                       {"ffn_hidden_size", "ffn_dim", "mlp_dim", "n_inner"});
}

void add_names_of_data(Settings& s) {
  s.known_elsewhere_as("data.text",
                       {"data", "dataset", "datasets", "dataset_name", "data_path", "data_dir",
                        "train_data", "train_file", "input_bin", "corpus"});
  s.known_elsewhere_as("data.shards", {"train_bin", "bin"});
  s.known_elsewhere_as("data.tokenizer",
                       {"tokenizer_name", "tokenizer_path", "tokenizer_name_or_path"});
  s.known_elsewhere_as("data.packing", {"sample_packing"});
  s.known_elsewhere_as("data.chat_train", {"chat.train", "train_on_last_turn", "roles_to_train"});
  s.known_elsewhere_as("data.chat_keep_thinking", {"chat.keep_thinking", "split_thinking"});
  s.known_elsewhere_as("data.chat_literal_content", {"chat.literal_content"});
  s.known_elsewhere_as("data.held_out", {"val_fraction", "validation_split", "val_set_size",
                                         "split", "validation_split_percentage"});
}

void add_names_of_the_loop(Settings& s) {
  s.known_elsewhere_as("train.steps",
                       {"max_iters", "max_steps", "num_iterations", "iterations", "iters",
                        "num_steps", "train_iters", "training_steps", "total_steps"});
  s.known_elsewhere_as("train.batch_size", {"global_batch_size", "batch", "train_batch_size", "bs",
                                            "total_batch_size"});
  s.known_elsewhere_as("train.micro_batch",
                       {"micro_batch_size", "mbs", "device_batch_size",
                        "per_device_train_batch_size", "gradient_accumulation_steps", "grad_accum",
                        "accumulation_steps", "accumulate_grad_batches"});
  s.known_elsewhere_as(
      "train.context",
      {"block_size", "seq_len", "seq_length", "sequence_length", "max_seq_len", "max_seq_length",
       "max_length", "context_length", "ctx", "ctx_len", "ctx_size", "n_ctx", "context_size"});
  s.known_elsewhere_as("train.dtype", {"precision", "mixed_precision", "torch_dtype"});
  s.value_known_as("train.dtype", "bf16",
                   {"bf16", "fp16", "amp", "autocast", "bfloat16", "half", "use_bf16"});
  s.value_known_as("train.dtype", "f32", {"fp32", "float32"});
  s.known_elsewhere_as("train.fp8", {"fp8", "float8", "fp8_format", "fp8_recipe", "fp8_hybrid"});
  s.value_known_as("train.recompute", "full",
                   {"gradient_checkpointing", "activation_checkpointing", "remat",
                    "recompute_activations", "use_gradient_checkpointing"});
  s.known_elsewhere_as(
      "run.dir", {"out", "output", "out_dir", "output_dir", "save_dir", "log_dir", "logging_dir",
                  "run_dir", "save", "load", "resume", "resume_from_checkpoint", "restore"});
  s.known_elsewhere_as("run.seed", {"random_seed", "manual_seed"});
  s.known_elsewhere_as("device.kind", {"device", "accelerator", "backend_device"});
  s.value_known_as("device.kind", "cuda", {"cuda", "gpu", "use_cuda", "use_gpu"});
  s.value_known_as("device.kind", "cpu", {"cpu", "no_cuda", "use_cpu"});
  s.known_elsewhere_as("device.graphs",
                       {"use_cuda_graphs", "use_cuda_graph", "cuda_graphs", "enable_cuda_graph"});
  s.known_elsewhere_as("device.threads",
                       {"num_threads", "n_threads", "omp_num_threads", "workers", "num_workers"});
}

// An optimizer's own options have theirs in optim/.
void add_names_of_the_optimizer(Settings& s) {
  s.known_elsewhere_as("optim.kind", {"optim", "optimizer", "optimizer_type", "optimiser"});
  s.known_elsewhere_as("optim.lr", {"learning_rate", "max_lr", "peak_lr", "base_lr"});
  s.known_elsewhere_as("optim.min_lr_ratio",
                       {"min_lr", "learning_rate_decay_frac", "final_lr_fraction"});
  s.known_elsewhere_as("optim.schedule", {"lr_scheduler", "lr_scheduler_type", "scheduler",
                                          "lr_decay_style", "decay_lr", "lr_schedule"});
  s.known_elsewhere_as("optim.warmup_steps",
                       {"warmup", "warmup_iters", "warmup_iterations", "num_warmup_steps",
                        "lr_warmup_iters", "warmup_ratio"});
  s.known_elsewhere_as("optim.clip", {"grad_clip", "clip_grad", "max_grad_norm", "max_norm",
                                      "gradient_clipping", "gradient_clip_val", "clip_norm"});
}

void add_names_of_the_rest(Settings& s) {
  s.known_elsewhere_as("dp.zero", {"zero_stage", "zero_optimization_stage", "fsdp"});
  s.known_elsewhere_as("parallel.ep", {"expert_model_parallel_size", "expert_parallel_size",
                                       "expert_parallel", "ep_size", "moe_expert_parallel_size"});
  s.known_elsewhere_as("lora.rank", {"lora_r", "lora.r", "lora", "use_lora"});
  s.known_elsewhere_as("lora.alpha", {"lora_alpha"});
  s.known_elsewhere_as("lora.dropout", {"lora_dropout"});
  s.known_elsewhere_as("lora.modules_to_save", {"modules_to_save", "lora_modules_to_save"});
  s.known_elsewhere_as("lora.target_parameters", {"target_parameters", "lora_target_parameters"});
  s.known_elsewhere_as("lora.trainable_token_indices",
                       {"trainable_token_indices", "lora_trainable_token_indices"});
  s.known_elsewhere_as("lora.dora", {"use_dora", "dora", "peft_use_dora"});
  s.known_elsewhere_as("lora.bias", {"lora_bias"});
  s.known_elsewhere_as("lora.exclude", {"exclude_modules"});
  s.known_elsewhere_as("lora.rank_pattern", {"rank_pattern"});
  s.known_elsewhere_as("lora.alpha_pattern", {"alpha_pattern"});
  s.known_elsewhere_as("lora.targets", {"target_modules", "lora_target_modules"});
  s.known_elsewhere_as("eval.every", {"eval_interval", "eval_steps", "eval_every", "val_loss_every",
                                      "evaluation_strategy", "eval_strategy"});
  s.known_elsewhere_as("train.epochs", {"num_epochs", "num_train_epochs", "max_epochs", "n_epochs",
                                        "epoch", "num_train_epoch"});
  s.known_elsewhere_as("eval.max_tokens", {"eval_iters", "val_max_steps", "eval_tokens"});
  s.known_elsewhere_as("checkpoint.every",
                       {"save_every", "save_steps", "save_interval", "checkpoint_interval",
                        "checkpoint_every", "save_strategy", "always_save_checkpoint"});
  s.known_elsewhere_as("checkpoint.keep", {"save_total_limit", "keep_last"});
  s.known_elsewhere_as("log.every", {"log_interval", "logging_steps", "log_every", "print_every"});
  s.known_elsewhere_as("log.tensorboard", {"report_to", "wandb", "wandb_log", "wandb_project"});
  s.known_elsewhere_as("log.trace", {"profile", "profiler"});
}

// Keys that nothing here corresponds to.
void add_names_of_nothing(Settings& s) {
  s.nothing_known_as({"load_in_4bit", "load_in_8bit", "qlora", "bnb_4bit_compute_dtype",
                      "bnb_4bit_quant_type", "quantization", "quantize", "bits"},
                     "training keeps all weights as f32 or bf16 (train.dtype): leave it out; "
                     "lora.rank trains adapters alone");
  s.nothing_known_as(
      {"compile", "torch_compile", "compile_model", "jit", "compiled", "flash", "flash_attention",
       "flash_attn", "use_flash_attn", "attn_implementation", "flash_attention_2", "sdp_attention"},
      "atoll compiles nothing when it starts and has one attention, which keeps no "
      "T x T matrix: leave it out");
  s.nothing_known_as({"push_to_hub", "hub_model_id", "hub_token", "hf_token"},
                     "atoll uploads nothing; `atoll export` makes a directory that `hf upload` "
                     "takes");
  s.nothing_known_as({"deepspeed", "fsdp_config", "deepspeed_config", "zero_config"},
                     "dp.zero says what data-parallel ranks share (ZeRO 0 to 3)");
  s.nothing_known_as(
      {"neftune_noise_alpha", "label_smoothing", "label_smoothing_factor", "ema", "ema_decay"},
      "atoll does not have that: leave it out");
}

// What other programs call the words that a key may be.
void add_words(Settings& s) {
  s.word_elsewhere("device.kind", "cuda", {"gpu", "nvidia", "cuda:0", "gpu:0"});
  s.word_elsewhere("device.kind", "cpu", {"mps", "xpu", "tpu", "rocm", "hip"});
  s.word_elsewhere("train.dtype", "bf16",
                   {"bfloat16", "torch.bfloat16", "fp16", "f16", "float16", "torch.float16", "half",
                    "bf16_mixed", "16"});
  s.word_elsewhere("train.dtype", "f32", {"float32", "torch.float32", "fp32", "float", "32"});
  s.word_elsewhere("train.recompute", "full", {"true", "on", "yes", "unsloth", "all"});
  s.word_elsewhere("train.recompute", "none", {"false", "off", "no"});
  s.word_elsewhere("train.fp8", "tensor", {"true", "hybrid", "e4m3", "tensorwise"});
  s.word_elsewhere("train.fp8", "blocks", {"deepseek", "blockwise", "block"});
  s.word_elsewhere("train.fp8", "off", {"false", "none", "no"});
  s.word_elsewhere("optim.kind", "adamw",
                   {"adam", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_8bit",
                    "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "fused_adamw"});
  s.word_elsewhere("optim.schedule", "cosine",
                   {"cosine_with_restarts", "cosine_with_min_lr", "cosineannealinglr"});
  s.word_elsewhere("optim.schedule", "constant",
                   {"none", "constant_with_warmup", "fixed", "false"});
  s.word_elsewhere("optim.schedule", "wsd", {"warmup_stable_decay", "trapezoidal", "trapezoid"});
  s.word_elsewhere("optim.schedule", "linear",
                   {"polynomial", "linear_with_warmup", "linear_decay"});
  for (const nn::Family& family : nn::families()) {
    for (const char* alias : family.aliases) {
      s.word_elsewhere("model.family", family.model_type, {alias});
    }
  }
  s.word_elsewhere("data.new_tokenizer", "byte", {"bytes"});
  s.word_elsewhere("data.new_tokenizer", "char", {"chars", "character", "characters"});
}

}  // namespace

void add_names_elsewhere(Settings& settings) {
  add_names_of_models(settings);
  add_names_of_data(settings);
  add_names_of_the_loop(settings);
  add_names_of_the_optimizer(settings);
  add_names_of_the_rest(settings);
  add_names_of_nothing(settings);
  add_words(settings);
}

}  // namespace atl::train
