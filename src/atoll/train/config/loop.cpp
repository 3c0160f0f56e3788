// train.*, optim.* and lora.*: the loop and what it updates.

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/optim/registry.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/lora.h"
#include "atoll/train/config/optimizer.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

// Nobody means more, and steps x batch and batch x context stay far below 2^63.
constexpr double kMaxCount = 1 << 20;

void check_batch(const TrainConfig& config, const Settings& s) {
  const LoopSettings& train = config.train;
  if (train.batch_size % train.micro_batch == 0) return;
  std::int64_t fitting = std::min(train.batch_size, train.micro_batch);
  while (train.batch_size % fitting != 0) --fitting;
  throw user_error("{} must be a multiple of {}; e.g. --train.micro_batch={}",
                   named(s, "train.batch_size"), named(s, "train.micro_batch"), fitting);
}

// With train.epochs the steps are known when the data is; then these are checked again.
bool has_open_length(const TrainConfig& config, const Settings& s) {
  return config.train.epochs > 0 && s.find("train.steps").is_default();
}

void check_warmup(const TrainConfig& config, const Settings& s) {
  if (has_open_length(config, s)) return;
  const std::int64_t steps = config.train.steps;
  if (config.optim.warmup_steps < steps) return;
  throw user_error("{} must be less than {}; e.g. --optim.warmup_steps={}",
                   named(s, "optim.warmup_steps"), named(s, "train.steps"), steps / 10);
}

void check_decay(const TrainConfig& config, const Settings& s) {
  if (config.optim.schedule != "wsd" || has_open_length(config, s)) return;
  const std::int64_t steps = config.train.steps;
  const auto decay = static_cast<std::int64_t>(
      std::llround(config.optim.decay_fraction * static_cast<double>(steps)));
  if (config.optim.warmup_steps + decay <= steps) return;
  throw user_error("{} and the {} that {} decays do not fit into {}; make one smaller",
                   named(s, "optim.warmup_steps"), counted(decay, "step"),
                   named(s, "optim.decay_fraction"), named(s, "train.steps"));
}

// What the optimizer's own file refuses.
void check_optimizer(const TrainConfig& config, const Settings& s) {
  optim::check_options(
      optim::find_optimizer(config.optim.kind), optimizer_options(config.optim),
      [&](const std::string& option) { return named(s, optim::option_key(option)); });
}

// An option is for the optimizers that read it; optim/ has registered all.
void add_rules_of_options(SettingRegistry& settings) {
  if (settings.declared() == nullptr) return;
  const std::span<const optim::OptimizerKind> kinds = optim::optimizer_kinds();
  for (const optim::Option& option : optim::all_options(kinds)) {
    std::vector<std::string> readers;
    for (const optim::OptimizerKind& kind : kinds) {
      if (kind.reads(option.name)) readers.emplace_back(kind.name);
    }
    if (readers.size() == kinds.size()) continue;
    const std::vector<Setting>& all = settings.settings().all();
    const auto at = std::find_if(all.begin(), all.end(), [&](const Setting& setting) {
      return setting.key == optim::option_key(option.name);
    });
    settings.declared()->add({.kind = Rule::Kind::kOnlyWith,
                              .setting = static_cast<std::size_t>(at - all.begin()),
                              .values = {},
                              .other_key = "optim.kind",
                              .others = Values(readers),
                              .why = ""});
  }
}

}  // namespace

void add_train(SettingRegistry& settings, TrainConfig& c) {
  LoopSettings& t = c.train;
  constexpr const char* kEndTogether =
      "islands end together, when the coordinator's batches are used up, and none by itself";
  settings.group("train", "The loop.");
  settings
      .add("train.objective", &t.objective,
           "What is learnt: the next token, or answers that are compared (docs/preferences.md). "
           "dpo and orpo: rows of prompt, chosen and rejected. kto: rows of prompt, completion and "
           "label. Two sequences are a pair, and train.micro_batch counts sequences.",
           one_of({"next_token", "dpo", "orpo", "kto"}))
      .fixed()
      .needs("model.from", changed("DIRECTORY"), "preferences are learnt by a model that answers")
      .not_beside("data.shards", "pairs are made of data.text")
      .not_beside("sync.mode", Values{"ps"}, "lanes of workers do not keep pairs together")
      .not_beside("launch.replicate", "ranks that join have no reference yet")
      .not_beside("device.graphs", "the factor of a pair's gradient is known within the pass");
  settings.add("train.steps", &t.steps, "Optimizer steps.", between(1, 1e12));
  settings
      .add("train.epochs", &t.epochs,
           "How often the run goes through its training samples, instead of train.steps, which is "
           "computed when the data is there; 0: train.steps. The last step may begin the next "
           "epoch.",
           between(0, 1e6))
      .not_beside("island.coordinator", kEndTogether)
      .not_beside("sync.mode", Values{"ps"}, "workers do not know each other's data")
      .not_beside("data.weights", "with weights the directories of data.shards end at other times");
  settings
      .add("train.stop_after", &t.stop_after,
           "Step after which this start of the run ends, with its checkpoint and evaluation, while "
           "the learning rate moves as train.steps says; started again with a later one, or "
           "without, the run goes on with the same bits. 0: train.steps.",
           between(0, 1e12))
      .not_beside("island.coordinator", kEndTogether);
  settings
      .add("train.batch_size", &t.batch_size, "Sequences in one optimizer step.",
           between(1, kMaxCount))
      .fixed()
      .checked("A multiple of train.micro_batch.", check_batch);
  settings
      .add("train.micro_batch", &t.micro_batch,
           "Sequences in one forward pass; gradients add up over batch_size / micro_batch of them. "
           "Smaller takes less memory.",
           between(1, kMaxCount))
      .fixed();
  settings.add("train.context", &t.context, "Tokens in a sequence.", between(1, kMaxCount)).fixed();
  settings
      .add("train.dtype", &t.dtype,
           "How weights and activations are stored. Sums, gradients and optimizer state are f32 in "
           "either; device.bf16 says what multiplies.",
           one_of({"f32", "bf16"}))
      .fixed();
  settings
      .add("train.fp8", &t.fp8,
           "Linear layers multiply in 8 bits (docs/gpus.md). Each operand is scaled and rounded "
           "just before a product. tensor: one scale for an operand; activations and weights in "
           "e4m3, gradients in e5m2; GPUs of compute capability 8.9 and above. blocks: one scale "
           "for 128 neighbours, of weights for 128 x 128; all in e4m3; GPUs of compute capability "
           "9.0 alone. A CPU rounds alike and multiplies in f32.",
           one_of({"off", "tensor", "blocks"}))
      .needs("train.dtype", "bf16");
  settings.add(
      "train.recompute", &t.recompute,
      "full: keep only the input of each block and compute the rest again in the backward pass; "
      "about a third more work. selective: do so with the MLPs alone; most of the memory for half "
      "of the work. The same bits in any case. But for selective, a GPU keeps what norms and "
      "activations give; a CPU always computes that again.",
      one_of({"none", "selective", "full"}));
  settings
      .add("train.dropout", &t.dropout, "Dropout after the embedding and in every branch.",
           from_below(0, 1))
      .fixed();
  settings.add("train.on_nonfinite", &t.on_nonfinite,
               "What to do when loss or gradient is NaN or infinite: stop, or skip the step.",
               one_of({"stop", "skip"}));
  settings
      .add("train.early_stop", &t.early_stop,
           "Evaluations (eval.every) in a row without a lower held-out loss after which the run "
           "ends, with a checkpoint; 0: never.",
           at_least(0))
      .with_scope(Scope::kIsland)
      .needs("eval.every", changed("100"), "it goes by evaluations")
      .not_beside("island.coordinator", kEndTogether);
  settings
      .add("train.early_stop_delta", &t.early_stop_delta,
           "By how much the loss must be lower to count, in nats a token.", at_least(0))
      .with_scope(Scope::kIsland)
      .needs("train.early_stop", changed("3"));
  settings.add(
      "train.exact", &t.exact,
      "Sum gradients over the micro-batches of a step one after the other, each as soon as it is "
      "made: the number of ranks then changes no bit of the result. Every round of micro-batches "
      "is reduced by itself.");
}

void add_optim(SettingRegistry& settings, TrainConfig& c) {
  OptimSettings& o = c.optim;
  settings.group("optim", "The optimizer and its learning rate.");
  Choices kinds;
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    kinds.names.emplace_back(kind.name);
  }
  settings.add("optim.kind", &o.kind, optim::describe(optim::optimizer_kinds()), kinds)
      .fixed()
      .checked("", check_optimizer);
  settings.add("optim.lr", &o.lr, "Highest learning rate, reached after warm-up.", above(0));
  settings.add("optim.min_lr_ratio", &o.min_lr_ratio, "Last learning rate over the highest.",
               between(0, 1));
  settings.add("optim.schedule", &o.schedule,
               "How the learning rate moves after warm-up; wsd is constant, then straight down.",
               one_of({"cosine", "linear", "constant", "wsd"}));
  settings.add("optim.warmup_steps", &o.warmup_steps, "Steps of straight rise to lr.", at_least(0))
      .checked("Fewer than train.steps.", check_warmup);
  settings
      .add("optim.decay_fraction", &o.decay_fraction,
           "wsd only: the part of all steps that goes down.", between(0, 1))
      .checked("Fits into train.steps after the warm-up.", check_decay);
  optim::register_default_options(settings.settings(), o.values, optim::optimizer_kinds());
  settings.add("optim.clip", &o.clip, "Largest gradient norm; 0: no clipping.", at_least(0));
  optim::register_other_options(settings.settings(), o.values, optim::optimizer_kinds());
  add_rules_of_options(settings);
  settings
      .add("optim.masters", &o.masters,
           "Keep weights in f32 beside (f32), or update the bf16 weights themselves with "
           "stochastic rounding, which takes 4 bytes a parameter less (stochastic).",
           one_of({"f32", "stochastic"}))
      .fixed()
      .only_with("train.dtype", "bf16")
      .not_beside("island.coordinator",
                  "what islands tell each other is finer than bf16, and each keeps it in f32");
}

namespace {

void check_rank_pattern(const TrainConfig& config, const Settings& /*settings*/) {
  rank_patterns(config.lora.rank_pattern);
}

void check_alpha_pattern(const TrainConfig& config, const Settings& /*settings*/) {
  alpha_patterns(config.lora.alpha_pattern);
}

void check_trained_tokens(const TrainConfig& config, const Settings& /*settings*/) {
  trained_tokens(config.lora.trainable_token_indices);
}

}  // namespace

void add_lora(SettingRegistry& settings, TrainConfig& c) {
  LoraSettings& l = c.lora;
  settings.group("lora",
                 "Low-rank adapters (LoRA): trains a small part beside the frozen weights of "
                 "model.from. Checkpoints hold the adapter, as the PEFT library does.");
  settings.add("lora.rank", &l.rank, "Rank of the adapters; 0: no LoRA.", between(0, 4096))
      .fixed()
      .needs("model.from", changed("DIRECTORY"), "adapters are of a model that there is");
  settings.add("lora.alpha", &l.alpha, "Adapters are scaled by alpha / rank.", above(0))
      .fixed()
      .only_with("lora.rank", changed("8"));
  settings
      .add("lora.targets", &l.targets,
           "Modules to adapt, as PEFT's target_modules: names, or one regular expression for the "
           "whole name of a module; all-linear: every one but the head.")
      .fixed()
      .only_with("lora.rank", changed("8"));
  settings
      .add("lora.rank_stabilized", &l.rank_stabilized,
           "Scale by alpha / sqrt(rank) instead (rsLoRA).")
      .fixed()
      .only_with("lora.rank", changed("8"));
  settings
      .add("lora.dropout", &l.dropout, "Share of an adapter's input elements that are dropped.",
           from_below(0, 1))
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("parallel.tp", "ranks have different columns of the input")
      .not_beside("parallel.cp", "ranks have different positions of the input");
  settings
      .add("lora.modules_to_save", &l.modules_to_save,
           "Modules to train whole beside the adapters, as PEFT's modules_to_save: the ends of "
           "their names, such as lm_head or norm.")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("parallel.tp", "ranks have parts of a module")
      .not_beside("parallel.pp", "one rank writes the adapter for all");
  settings
      .add("lora.target_parameters", &l.target_parameters,
           "Stacked experts to adapt, as PEFT's target_parameters: mlp.experts.gate_up_proj, "
           "mlp.experts.down_proj. An empty lora.targets then adapts nothing else.")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("lora.dropout", "an adapted parameter has no input of its own that could drop")
      .not_beside("lora.dora", "experts have no lengths of rows")
      .not_beside("device.kind", Values({"cuda", "fake_cuda"}),
                  "no kernel for GPUs puts factors of experts in order");
  settings
      .add(
          "lora.trainable_token_indices", &l.trainable_token_indices,
          "Tokens whose rows of the embedding are trained, as PEFT's trainable_token_indices; of a "
          "head that shares the embedding likewise.")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("device.kind", Values({"cuda", "fake_cuda"}),
                  "no kernel for GPUs puts rows in their places")
      .not_beside("parallel.tp", "ranks have parts of the embedding")
      .checked("Each is a whole number, once.", check_trained_tokens);
  settings
      .add("lora.exclude", &l.exclude,
           "Modules not to adapt, as PEFT's exclude_modules: names, or one regular expression for "
           "the whole name of a module.")
      .fixed()
      .only_with("lora.rank", changed("8"));
  settings
      .add("lora.rank_pattern", &l.rank_pattern,
           "Ranks of their own, as PEFT's rank_pattern: \"PATTERN=RANK\", the pattern a regular "
           "expression for the end of a module's name. The first that matches counts.")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .checked("A rank is from 1 to 4096.", check_rank_pattern);
  settings
      .add("lora.alpha_pattern", &l.alpha_pattern,
           "Alphas of their own, likewise: \"PATTERN=ALPHA\".")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .checked("An alpha is above 0.", check_alpha_pattern);
  settings
      .add(
          "lora.bias", &l.bias,
          "Biases to train beside the adapters: none, those of the adapted modules (lora_only), or "
          "all of the model's.",
          one_of({"none", "lora_only", "all"}))
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("parallel.tp", "ranks have parts of a bias")
      .not_beside("parallel.pp", "one rank writes the adapter for all");
  settings
      .add("lora.dora", &l.dora,
           "Weight-decomposed adapters (DoRA): each row of an adapted weight has a trained length.")
      .fixed()
      .only_with("lora.rank", changed("8"))
      .not_beside("device.kind", Values({"cuda", "fake_cuda"}),
                  "no kernel for GPUs computes the lengths of rows")
      .not_beside("parallel.tp", "ranks have parts of a row");
}

}  // namespace atl::train
