#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/compress/codec.h"
#include "atoll/island/client/shard.h"
#include "atoll/island/policy/policy.h"
#include "atoll/metrics/alert.h"
#include "atoll/train/config.h"
#include "atoll/train/config_device.h"
#include "atoll/train/config_experts.h"
#include "atoll/train/config_mup.h"
#include "atoll/train/config_offload.h"
#include "atoll/train/island/outer_options.h"
#include "atoll/train/options.h"
#include "atoll/train/rules.h"
#include "atoll/wire/address.h"

namespace atl::train {

namespace {

// "train.steps (400, r.toml:3)": what a message needs to be acted on.
std::string named(const Settings& settings, const char* key) {
  const Setting& setting = settings.find(key);
  return fmt::format("{} ({}, {})", key, to_toml(setting.value()), setting.origin);
}

bool given(const Settings& settings, const char* key) {
  return !settings.find(key).is_default();
}

// Refuses `key` when it was given although `winner` already decides what it says.
void refuse_beside(const Settings& settings, const char* key, const char* winner,
                   const char* reason) {
  if (!given(settings, key)) return;
  throw user_error("{} and {} are both given, and {}; remove one of them", named(settings, winner),
                   named(settings, key), reason);
}

void validate_evaluation(const TrainConfig& config, const Settings& s) {
  if (config.eval.every == 0 || config.data.text.empty() || config.data.held_out > 0) return;
  throw user_error(
      "{} and {}: no text is held out to evaluate on; hold some out, or set "
      "eval.every=0",
      named(s, "eval.every"), named(s, "data.held_out"));
}

void validate_data(const DataSettings& data, const ModelSettings& model, const Settings& s) {
  const bool text = !data.text.empty();
  const bool shards = !data.shards.empty();
  if (text && shards) {
    throw user_error(
        "{} and {} are both given; a run has one source: empty the other with {}",
        named(s, "data.text"), named(s, "data.shards"),
        s.find("data.shards").origin.starts_with("--") ? "--data.text=" : "--data.shards=");
  }
  if (!text && !shards) {
    throw user_error(
        "no data: give data.text (text files or directories) or data.shards (a directory made by "
        "`atoll tokenize`), e.g. --data.text=book.txt");
  }
  if (shards) {
    for (const char* key :
         {"data.tokenizer", "data.new_tokenizer", "data.vocab_size", "data.special_tokens",
          "data.held_out", "data.documents", "data.fields.text", "data.fields.prompt",
          "data.fields.completion", "data.fields.chat", "data.fields.messages", "data.fields.role",
          "data.fields.content", "data.fields.roles"}) {
      refuse_beside(s, key, "data.shards", "shards have settled that already");
    }
  } else {
    for (const char* key : {"data.weights", "data.cache_dir", "data.cache_gib"}) {
      if (!given(s, key)) continue;
      throw user_error("{} is about data.shards, which is not given; remove it", named(s, key));
    }
  }
  if (!data.weights.empty() && data.weights.size() != data.shards.size()) {
    throw user_error("{} has {} shares for the {} directories of {}; give one for each",
                     named(s, "data.weights"), data.weights.size(), data.shards.size(),
                     named(s, "data.shards"));
  }
  if (given(s, "data.cache_gib") && data.cache_dir.empty()) {
    throw user_error("{} without data.cache_dir limits nothing; set data.cache_dir",
                     named(s, "data.cache_gib"));
  }
  data::check_fields(data.fields, "data.fields.");
  for (const char* key : {"data.vocab_size", "data.new_tokenizer", "data.special_tokens"}) {
    if (!data.tokenizer.empty()) {
      refuse_beside(s, key, "data.tokenizer", "a tokenizer has its own vocabulary");
    }
    if (!model.from.empty()) {
      refuse_beside(s, key, "model.from", "a model has its own vocabulary");
    }
  }
  if (data.new_tokenizer != "bpe") {
    refuse_beside(s, "data.vocab_size", "data.new_tokenizer", "the text decides its vocabulary");
  }
}

void validate_model_source(const ModelSettings& model, const Settings& s) {
  if (!model.from.empty() && !model.config.empty()) {
    refuse_beside(s, "model.config", "model.from", "each says what the model is");
  }
  if (model.is_inline()) return;
  const char* source = model.from.empty() ? "model.config" : "model.from";
  for (const Setting& setting : s.all()) {
    if (!setting.key.starts_with("model.") || setting.key == "model.from" ||
        setting.key == "model.config" || is_of_parametrisation(setting.key)) {
      continue;
    }
    refuse_beside(s, setting.key.c_str(), source, "its config.json says what the model is");
  }
}

// A key that only some choice of another gives a meaning is an error beside any other choice.
void only_with(const Settings& s, std::initializer_list<const char*> keys, const char* choice,
               bool chosen, const std::string& meaning) {
  for (const char* key : keys) {
    if (chosen || !given(s, key)) continue;
    throw user_error("{} is for {}, and {}; remove it", named(s, key), meaning, named(s, choice));
  }
}

void validate_gpt2(const ModelSettings& model, const Settings& s) {
  if (model.num_key_value_heads != 0 && model.num_key_value_heads != model.num_attention_heads) {
    throw user_error("{}: gpt2 has as many key-value heads as heads; use 0, or model.family=llama",
                     named(s, "model.num_key_value_heads"));
  }
  if (model.head_dim != 0 && model.head_dim * model.num_attention_heads != model.hidden_size) {
    throw user_error("{}: gpt2's heads share hidden_size evenly; use 0",
                     named(s, "model.head_dim"));
  }
  if (given(s, "model.rope_theta")) {
    throw user_error("{}: gpt2 has no rotary positions; remove it, or use model.family=llama",
                     named(s, "model.rope_theta"));
  }
}

// The hidden_size nearest to the one given that the heads can share: each gets as many elements,
// and an even number of them where they are rotated in pairs.
std::int64_t fitting_hidden_size(const ModelSettings& model) {
  const std::int64_t unit = model.num_attention_heads * (model.family == "gpt2" ? 1 : 2);
  return std::max<std::int64_t>(1, (model.hidden_size + unit / 2) / unit) * unit;
}

void validate_shape(const TrainConfig& config, const Settings& s) {
  const ModelSettings& model = config.model;
  const std::int64_t heads = model.num_attention_heads;
  if (model.head_dim == 0 && model.hidden_size % heads != 0) {
    throw user_error("{} must be a multiple of {}; use {}, or set model.head_dim",
                     named(s, "model.hidden_size"), named(s, "model.num_attention_heads"),
                     fitting_hidden_size(model));
  }
  if (model.num_key_value_heads != 0 && heads % model.num_key_value_heads != 0) {
    throw user_error("{} must be a multiple of {}; use 0 for as many as heads",
                     named(s, "model.num_attention_heads"), named(s, "model.num_key_value_heads"));
  }
  only_with(s, {"model.sliding_window"}, "model.family",
            model.family == "mistral" || model.family == "mixtral",
            "model.family mistral or mixtral");
  only_with(s, {"model.num_experts", "model.num_experts_per_tok"}, "model.family",
            has_experts(model.family), "model.family mixtral or qwen3_moe");
  only_with(s, {"model.moe_intermediate_size", "model.norm_topk_prob"}, "model.family",
            model.family == "qwen3_moe", "model.family qwen3_moe");
  if (model.family == "gpt2") {
    validate_gpt2(model, s);
  } else if (const std::int64_t dim =
                 model.head_dim != 0 ? model.head_dim : model.hidden_size / heads;
             dim % 2 != 0) {
    if (model.head_dim != 0) {
      throw user_error("{} cannot be rotated in pairs; make it even, e.g. {}",
                       named(s, "model.head_dim"), dim + 1);
    }
    throw user_error("a head of {} / {} = {} cannot be rotated in pairs; use model.hidden_size={}",
                     named(s, "model.hidden_size"), named(s, "model.num_attention_heads"),
                     counted(dim, "element"), fitting_hidden_size(model));
  }
  if (model.max_position_embeddings != 0 && config.train.context > model.max_position_embeddings) {
    throw user_error("{} is more than {}; raise the latter, or leave it 0",
                     named(s, "train.context"), named(s, "model.max_position_embeddings"));
  }
}

void validate_batch(const LoopSettings& train, const Settings& s) {
  if (train.batch_size % train.micro_batch == 0) return;
  std::int64_t fitting = std::min(train.batch_size, train.micro_batch);
  while (train.batch_size % fitting != 0) --fitting;
  throw user_error("{} must be a multiple of {}; e.g. --train.micro_batch={}",
                   named(s, "train.batch_size"), named(s, "train.micro_batch"), fitting);
}

void validate_optimizer(const TrainConfig& config, const Settings& s) {
  const std::span<const optim::OptimizerKind> kinds = optim::optimizer_kinds();
  const optim::OptimizerKind& kind = optim::find_optimizer(config.optim.kind);
  for (const optim::Option& option : optim::all_options(kinds)) {
    only_with(s, {optim::option_key(option.name).c_str()}, "optim.kind", kind.reads(option.name),
              "optim.kind " + optim::readers(kinds, option.name));
  }
  only_with(s, {"optim.masters"}, "train.dtype", config.train.dtype == "bf16", "train.dtype bf16");
  optim::check_options(kind, optimizer_options(config.optim), [&](const std::string& option) {
    return named(s, optim::option_key(option).c_str());
  });
}

void validate_lora(const TrainConfig& config, const Settings& s) {
  if (config.lora.rank == 0) {
    for (const char* key : {"lora.alpha", "lora.targets", "lora.rank_stabilized"}) {
      if (!given(s, key)) continue;
      throw user_error("{} without lora.rank does nothing; set lora.rank, e.g. --lora.rank=8",
                       named(s, key));
    }
    return;
  }
  if (config.model.from.empty()) {
    throw user_error(
        "{} adapts a model that there is, and model.from is not given; set model.from to a Hugging "
        "Face directory",
        named(s, "lora.rank"));
  }
}

void validate_policy(const OuterSettings& outer, const Settings& s) {
  only_with(s, {"outer.min_inner_steps", "outer.max_inner_steps"}, "outer.policy",
            outer.policy != "fixed", "a policy that changes them");
  only_with(s, {"outer.qsr_alpha"}, "outer.policy", outer.policy == "qsr", "outer.policy qsr");
  only_with(s, {"outer.round_mb", "outer.day_mb"}, "outer.policy",
            outer.policy == "budget" || outer.policy == "auto", "outer.policy budget or auto");
  for (const auto& [key, steps] : {std::pair("outer.min_inner_steps", outer.min_inner_steps),
                                   std::pair("outer.max_inner_steps", outer.max_inner_steps)}) {
    if (steps % outer.fragments == 0) continue;
    throw user_error("{} must be a multiple of {}: fragments take turns at even distances",
                     named(s, key), named(s, "outer.fragments"));
  }
  const int islands = static_cast<int>(outer.islands);
  const std::string why = island::policy_fault(policy_plan(outer, /*parameters=*/0), islands);
  if (!why.empty()) throw user_error("{}: {}", named(s, "outer.policy"), why);
}

void validate_outer(const OuterSettings& outer, const Settings& s) {
  only_with(s, {"outer.fragments", "outer.overlap", "outer.merge"}, "outer.algorithm",
            outer.algorithm == "streaming", "outer.algorithm streaming");
  only_with(s, {"outer.momentum"}, "outer.optimizer", outer.optimizer == "nesterov",
            "outer.optimizer nesterov");
  try {
    (void)compress::make_codec(outer.codec);
  } catch (const Error& error) {
    throw user_error("{}: {}", named(s, "outer.codec"), error.what());
  }
  if (outer.inner_steps % outer.fragments != 0) {
    throw user_error("{} must be a multiple of {}: fragments take turns at even distances",
                     named(s, "outer.inner_steps"), named(s, "outer.fragments"));
  }
  if (outer.overlap > outer.inner_steps / outer.fragments) {
    throw user_error("{} is more than the {} between two fragments ({} / {}); make it smaller",
                     named(s, "outer.overlap"),
                     counted(outer.inner_steps / outer.fragments, "step"),
                     named(s, "outer.inner_steps"), named(s, "outer.fragments"));
  }
  if (outer.algorithm == "streaming" && outer.merge >= 1) {
    throw user_error(
        "{}: an island that keeps all of its own parameters takes none from the "
        "others; it must be below 1",
        named(s, "outer.merge"));
  }
  if (outer.algorithm == "eager" && outer.optimizer == "adam") {
    throw user_error("{} and {}: eager needs sgd or nesterov, whose steps are sums of the islands'",
                     named(s, "outer.algorithm"), named(s, "outer.optimizer"));
  }
  if (outer.algorithm == "async") {
    if (outer.optimizer != "nesterov") {
      throw user_error("{} and {}: async has Nesterov's momentum, in its own way",
                       named(s, "outer.algorithm"), named(s, "outer.optimizer"));
    }
    const bool waits = given(s, "outer.grace_s") && outer.grace_s > 0;
    if (waits || outer.quorum > 0) {
      throw user_error("{} with outer.algorithm async: nobody is waited for; make it 0",
                       named(s, waits ? "outer.grace_s" : "outer.quorum"));
    }
    if (outer.policy != "fixed") {
      throw user_error(
          "{} and {}: policies choose for islands that exchange together; with async "
          "only outer.policy fixed is built",
          named(s, "outer.algorithm"), named(s, "outer.policy"));
    }
  }
  if (outer.algorithm == "gossip") {
    if (outer.codec != "f32") {
      throw user_error(
          "{} and {}: gossip exchanges parameters, and not their changes, which a codec may round; "
          "it needs outer.codec f32",
          named(s, "outer.algorithm"), named(s, "outer.codec"));
    }
    if (outer.optimizer == "adam") {
      throw user_error(
          "{} and {}: gossip needs sgd or nesterov, whose steps are sums of the "
          "islands'",
          named(s, "outer.algorithm"), named(s, "outer.optimizer"));
    }
    if (outer.policy != "fixed") {
      throw user_error(
          "{} and {}: policies choose for islands that exchange together; with gossip only "
          "outer.policy fixed is built",
          named(s, "outer.algorithm"), named(s, "outer.policy"));
    }
  }
  only_with(s, {"outer.async_momentum"}, "outer.algorithm", outer.algorithm == "async",
            "outer.algorithm async");
  validate_policy(outer, s);
  // Whatever else these refuse when an island begins, they refuse here.
  const island::OuterOptions options = outer_options(outer);
  const auto optimizer = island::make_outer_optimizer(options.optimizer);
  (void)island::make_outer_algorithm(options, *optimizer);
}

// What an island cannot do yet is refused before it joins others.
void validate_island(const TrainConfig& config, const Settings& s) {
  if (config.island.coordinator.empty()) {
    for (const char* key :
         {"island.name", "island.listen", "island.advertise", "island.identity", "island.secret"}) {
      if (!given(s, key)) continue;
      throw user_error("{} without island.coordinator does nothing; give that too", named(s, key));
    }
    return;
  }
  wire::parse_address(config.island.coordinator, "island.coordinator");
  for (const auto& [text, name] : {std::pair(config.island.listen, "island.listen"),
                                   std::pair(config.island.advertise, "island.advertise")}) {
    if (text.empty()) continue;
    for (const std::string& one : island::split_addresses(text)) wire::parse_address(one, name);
  }
  if (config.island.name.empty()) {
    throw user_error("{} and no island.name: give it one, e.g. --island.name=lyon",
                     named(s, "island.coordinator"));
  }
  if (config.train.dtype != "f32" && config.optim.masters != "f32") {
    throw user_error(
        "{}: what islands tell each other is finer than bf16, and each keeps it in "
        "f32; use optim.masters=f32",
        named(s, "optim.masters"));
  }
}

// The planner chooses what stands here; a value beside it could only contradict.
void validate_layout(const TrainConfig& config, const Settings& s) {
  if (config.parallel.layout != "auto") return;
  for (const char* key : {"parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep",
                          "parallel.schedule", "parallel.chunks"}) {
    refuse_beside(s, key, "parallel.layout", "auto chooses it");
  }
}

// What the ranks of a pipeline cannot do yet, by the setting that asks for it.
void validate_pipeline(const TrainConfig& config, const Settings& s) {
  if (config.parallel.pp == 1) return;
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "parallel.pp"),
                     named(s, key), remedy);
  };
  refuse(config.train.exact, "train.exact", "leave it out");
  refuse(config.dp.balance, "dp.balance", "leave it out");
}

// What ranks that have parts of sequences cannot do yet, by the setting that asks for it.
void validate_context(const TrainConfig& config, const Settings& s) {
  if (config.parallel.cp == 1) return;
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "parallel.cp"),
                     named(s, key), remedy);
  };
  refuse(config.dp.balance, "dp.balance", "leave it out");
  if (config.train.context % config.parallel.cp != 0) {
    // Twice that serves a ring, too.
    const std::int64_t step = std::lcm(2, config.parallel.tp) * config.parallel.cp;
    throw user_error(
        "{} must be a multiple of {}: the ranks share each sequence evenly; the nearest is "
        "--train.context={}",
        named(s, "train.context"), named(s, "parallel.cp"),
        std::max(step, (config.train.context + step / 2) / step * step));
  }
}

// What ranks that share experts cannot do yet, by the setting that asks for it.
void validate_expert_parallel(const TrainConfig& config, const Settings& s) {
  if (config.parallel.ep == 1) return;
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "parallel.ep"),
                     named(s, key), remedy);
  };
  refuse(config.train.exact, "train.exact", "leave it out");
  refuse(config.lora.rank > 0, "lora.rank", "use data parallel with dp.zero for adapters");
  refuse(config.dp.balance, "dp.balance", "leave it out");
}

// What ranks that share each product cannot do yet, by the setting that asks for it.
void validate_parallel(const TrainConfig& config, const Settings& s) {
  if (config.parallel.tp == 1) return;
  const auto refuse = [&](bool is_given, const char* key, const char* remedy) {
    if (!is_given) return;
    throw user_error("{} does not go together with {} yet; {}", named(s, "parallel.tp"),
                     named(s, key), remedy);
  };
  refuse(optim::find_optimizer(config.optim.kind).whole_matrices &&
             config.optim.masters == "stochastic",
         "optim.masters",
         "parts of muon's matrices are rounded by nothing but their masters: take f32");
  refuse(config.dp.balance, "dp.balance", "leave it out");
  if (config.train.context % (config.parallel.tp * config.parallel.cp) != 0) {
    throw user_error("{} must be a multiple of {}{}: the ranks share the rows of a sequence evenly",
                     named(s, "train.context"), named(s, "parallel.tp"),
                     config.parallel.cp > 1 ? " times " + named(s, "parallel.cp") : "");
  }
}

// Copies of a state that ranks have in parts.
void validate_copies(const TrainConfig& config, const Settings& s) {
  if (!config.parallel.has_parts()) {
    if (s.find("launch.replicate_every").is_default()) return;
    throw user_error(
        "{} is for ranks that have parts of the model (parallel.tp, pp, cp or ep), and copies of "
        "whole ones follow every step; leave it out",
        named(s, "launch.replicate_every"));
  }
  if (!config.launch.replicate) {
    if (s.find("launch.replicate_every").is_default()) return;
    throw user_error("{} without launch.replicate does nothing; give that too",
                     named(s, "launch.replicate_every"));
  }
  if (config.island.coordinator.empty()) return;
  throw user_error(
      "{} does not go together with {} and ranks that have parts of the model yet: what an island "
      "exchanges is in no copy; leave it out, and a lost rank costs the steps since the newest "
      "checkpoint",
      named(s, "launch.replicate"), named(s, "island.coordinator"));
}

void validate_schedule(const TrainConfig& config, const Settings& s) {
  const std::int64_t steps = config.train.steps;
  const std::int64_t warmup = config.optim.warmup_steps;
  if (warmup >= steps) {
    throw user_error("{} must be less than {}; e.g. --optim.warmup_steps={}",
                     named(s, "optim.warmup_steps"), named(s, "train.steps"), steps / 10);
  }
  if (config.train.stop_after > 0 && !config.island.coordinator.empty()) {
    throw user_error("{} is for a run without islands, which end together; leave it out",
                     named(s, "train.stop_after"));
  }
  if (config.optim.schedule != "wsd") return;
  const auto decay = static_cast<std::int64_t>(
      std::llround(config.optim.decay_fraction * static_cast<double>(steps)));
  if (warmup + decay > steps) {
    throw user_error("{} and the {} that {} decays do not fit into {}; make one smaller",
                     named(s, "optim.warmup_steps"), counted(decay, "step"),
                     named(s, "optim.decay_fraction"), named(s, "train.steps"));
  }
}

// What acts on evaluations needs them, and one place that decides.
void validate_best(const TrainConfig& config, const Settings& s) {
  for (const char* key : {"eval.samples", "checkpoint.keep_best", "train.early_stop"}) {
    const bool is_wanted = std::get<std::int64_t>(s.find(key).value()) > 0;
    if (!is_wanted) continue;
    if (config.eval.every == 0 && std::string_view(key) != "eval.samples") {
      throw user_error("{} goes by evaluations, and {}; set eval.every", named(s, key),
                       named(s, "eval.every"));
    }
  }
  if (config.train.early_stop > 0 && !config.island.coordinator.empty()) {
    throw user_error(
        "{}: islands end together, when the coordinator's batches are used up, and none by itself; "
        "leave it out, or {}",
        named(s, "train.early_stop"), named(s, "island.coordinator"));
  }
  for (const char* key : {"eval.prompts", "eval.sample_tokens"}) {
    if (config.eval.samples > 0 || !given(s, key)) continue;
    throw user_error("{} says nothing without eval.samples, which is 0; set it", named(s, key));
  }
  if (config.train.early_stop_delta > 0 && config.train.early_stop == 0) {
    throw user_error("{} says nothing without train.early_stop, which is 0; set it",
                     named(s, "train.early_stop_delta"));
  }
}

void validate_alerts(const AlertSettings& alerts, const Settings& s) {
  for (const std::string& kind : alerts.off) {
    if (kind == "all") continue;
    try {
      metrics::alert_kind(kind);
    } catch (const Error& error) {
      throw user_error("{}: {}; or all", named(s, "alerts.off"), error.what());
    }
  }
  const std::string& url = alerts.webhook;
  if (url.empty() || url.starts_with("http://") || url.starts_with("https://")) return;
  throw user_error("{} must be an address that begins with http:// or https://",
                   named(s, "alerts.webhook"));
}

}  // namespace

void validate(const TrainConfig& config, const Settings& settings) {
  if (config.run.dir.empty()) {
    throw user_error(
        "run.dir is not set: give a recipe that sets it (a TOML file, as an argument), or say "
        "where "
        "the run may write, e.g. --run.dir=runs/first");
  }
  validate_device(config, settings);
  validate_data(config.data, config.model, settings);
  validate_evaluation(config, settings);
  validate_model_source(config.model, settings);
  validate_parametrisation(config, settings);
  if (config.model.is_inline()) validate_shape(config, settings);
  validate_batch(config.train, settings);
  validate_schedule(config, settings);
  validate_optimizer(config, settings);
  validate_lora(config, settings);
  validate_outer(config.outer, settings);
  validate_island(config, settings);
  validate_layout(config, settings);
  validate_parallel(config, settings);
  validate_pipeline(config, settings);
  validate_context(config, settings);
  validate_expert_parallel(config, settings);
  validate_copies(config, settings);
  validate_offload(config, settings);
  rules().check(config, settings);
  validate_best(config, settings);
  validate_alerts(config.alerts, settings);
}

}  // namespace atl::train
