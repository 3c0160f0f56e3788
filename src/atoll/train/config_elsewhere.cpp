#include "atoll/train/config_elsewhere.h"

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
  s.known_elsewhere_as("data.held_out", {"val_fraction", "validation_split", "val_set_size",
                                         "split", "validation_split_percentage"});
}

void add_names_of_the_loop(Settings& s) {
  s.known_elsewhere_as("train.steps", {"max_iters", "max_steps", "num_iterations", "iterations",
                                       "iters", "num_steps", "train_iters", "training_steps",
                                       "total_steps", "epochs", "num_epochs", "num_train_epochs"});
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
  s.known_elsewhere_as("train.dtype",
                       {"precision", "bf16", "fp16", "mixed_precision", "torch_dtype", "amp"});
  s.known_elsewhere_as("train.fp8", {"fp8", "float8", "fp8_format", "fp8_recipe", "fp8_hybrid"});
  s.known_elsewhere_as("train.recompute",
                       {"gradient_checkpointing", "activation_checkpointing", "remat"});
  s.known_elsewhere_as(
      "run.dir", {"out", "output", "out_dir", "output_dir", "save_dir", "log_dir", "logging_dir",
                  "run_dir", "save", "load", "resume", "resume_from_checkpoint", "restore"});
  s.known_elsewhere_as("run.seed", {"random_seed", "manual_seed"});
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
  s.known_elsewhere_as("lora.rank", {"lora_r", "lora", "use_lora"});
  s.known_elsewhere_as("lora.alpha", {"lora_alpha"});
  s.known_elsewhere_as("lora.targets", {"target_modules", "lora_target_modules"});
  s.known_elsewhere_as("eval.every", {"eval_interval", "eval_steps", "eval_every", "val_loss_every",
                                      "evaluation_strategy", "eval_strategy"});
  s.known_elsewhere_as("eval.max_tokens", {"eval_iters", "val_max_steps", "eval_tokens"});
  s.known_elsewhere_as("checkpoint.every",
                       {"save_every", "save_steps", "save_interval", "checkpoint_interval",
                        "checkpoint_every", "save_strategy", "always_save_checkpoint"});
  s.known_elsewhere_as("checkpoint.keep", {"save_total_limit", "keep_last"});
  s.known_elsewhere_as("log.every", {"log_interval", "logging_steps", "log_every", "print_every"});
  s.known_elsewhere_as("log.tensorboard", {"report_to", "wandb", "wandb_log", "wandb_project"});
  s.known_elsewhere_as("log.trace", {"profile", "profiler"});
}

}  // namespace

void add_names_elsewhere(Settings& settings) {
  add_names_of_models(settings);
  add_names_of_data(settings);
  add_names_of_the_loop(settings);
  add_names_of_the_optimizer(settings);
  add_names_of_the_rest(settings);
}

}  // namespace atl::train
