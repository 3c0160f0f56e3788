#include "atoll/nn/models/bookkeeping.h"

#include <algorithm>
#include <iterator>

namespace atl::nn {

namespace {

// Sorted, for a binary search.
constexpr std::string_view kBookkeeping[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_name_or_path",
    "_num_labels",
    "_remove_final_layer_norm",
    "_sliding_window_pattern",  // what "layer_types" was made from
    "_unsloth_version",
    "add_cross_attention",
    "add_eos_token",
    "architectures",
    "attention_dropout",  // a run's dropout is train.dropout
    "attn_implementation",
    "attn_pdrop",
    "auto_map",  // names code that a known model_type does not need
    "axolotl_config",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token",
    "cache_implementation",
    "chat_template",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "convert_rope_params_to_dict",
    "cross_attention_hidden_size",
    "custom_pipelines",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "embedding_dropout",
    "encoder_no_repeat_ngram_size",
    "eos_token",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "generation_config",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "ignore_keys_at_rope_validation",
    "is_causal",  // where it is true: see ConfigReader::finish
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "label_names",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "mergekit_config",
    "merges",
    "min_length",
    "min_p",
    "model_max_length",
    "model_name",
    "model_type",
    "n_special",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_router_logits",
    "output_scores",
    "pad_token",
    "predict_special_tokens",
    "prefix",
    "pretraining_tp",  // into how many products training cut one
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_hidden_size",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "trainer_config",
    "training_args",
    "transformers.js_config",
    "transformers_version",
    "trust_remote_code",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attention_2",
    "use_flash_attn",
    "use_liger_kernel",
};

// Words between '_' of the names that architectures give their fields.
constexpr std::string_view kArchitecture[] = {
    "act",       "activation",  "alibi",      "attention", "attn",    "bias",      "block",
    "cap",       "capping",     "clip",       "conv",      "dim",     "embd",      "embed",
    "embedding", "eps",         "epsilon",    "expert",    "experts", "factor",    "ffn",
    "gate",      "gated",       "gating",     "groups",    "head",    "heads",     "hidden",
    "interval",  "kv",          "latent",     "layer",     "layers",  "layernorm", "limit",
    "linear",    "logit",       "logits",     "mamba",     "mixture", "mlp",       "moe",
    "mrope",     "mscale",      "multiplier", "nope",      "norm",    "normalize", "parallel",
    "partial",   "pattern",     "position",   "positions", "qk",      "qkv",       "query",
    "rank",      "residual",    "rmsnorm",    "rope",      "rotary",  "router",    "routing",
    "scale",     "scaled",      "scaling",    "shared",    "sink",    "sinks",     "sliding",
    "softcap",   "softcapping", "sparse",     "ssm",       "swiglu",  "theta",     "topk",
    "window",    "yarn",
};

bool has_word(std::string_view field, std::string_view word) {
  for (std::size_t at = field.find(word); at != std::string_view::npos;
       at = field.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || field[at - 1] == '_' || field[at - 1] == '.';
    const bool ends = end == field.size() || field[end] == '_' || field[end] == '.';
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

bool is_bookkeeping(std::string_view field) {
  return std::binary_search(std::begin(kBookkeeping), std::end(kBookkeeping), field);
}

bool is_named_like_architecture(std::string_view field) {
  return std::any_of(std::begin(kArchitecture), std::end(kArchitecture),
                     [&](std::string_view word) { return has_word(field, word); });
}

}  // namespace atl::nn
