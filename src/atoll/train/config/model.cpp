// model.*: what a model is, and which of that a run may say.

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/train/config/experts.h"
#include "atoll/train/config/family_names.h"
#include "atoll/train/config/groups.h"
#include "atoll/train/config/mup.h"
#include "atoll/train/config/rules.h"

namespace atl::train {

namespace {

Choices families() {
  Choices choices;
  for (const nn::Family& family : nn::families()) choices.names.emplace_back(family.model_type);
  return choices;
}

bool has_rope(const ModelSettings& model) {
  return nn::find_family(model.family, "model.family").has_rope;
}

bool has_even_heads(const ModelSettings& model) {
  return nn::find_family(model.family, "model.family").has_even_heads;
}

// The hidden_size nearest to the one given that the heads can share: each gets as many elements,
// and an even number of them where they are rotated in pairs.
std::int64_t fitting_hidden_size(const ModelSettings& model) {
  const std::int64_t unit = model.num_attention_heads * (has_rope(model) ? 2 : 1);
  return std::max<std::int64_t>(1, (model.hidden_size + unit / 2) / unit) * unit;
}

// The checks below are of a model whose shape stands in the settings: every other has been built.

void check_heads(const TrainConfig& config, const Settings& s) {
  const ModelSettings& model = config.model;
  const std::int64_t heads = model.num_attention_heads;
  if (!model.is_inline()) return;
  if (model.head_dim == 0 && model.hidden_size % heads != 0) {
    throw user_error("{} must be a multiple of {}; use {}, or set model.head_dim",
                     named(s, "model.hidden_size"), named(s, "model.num_attention_heads"),
                     fitting_hidden_size(model));
  }
  if (model.num_key_value_heads != 0 && heads % model.num_key_value_heads != 0) {
    throw user_error("{} must be a multiple of {}; use 0 for as many as heads",
                     named(s, "model.num_attention_heads"), named(s, "model.num_key_value_heads"));
  }
}

void check_key_value_heads(const TrainConfig& config, const Settings& s) {
  const ModelSettings& model = config.model;
  if (!model.is_inline() || !has_even_heads(model)) return;
  if (model.num_key_value_heads == 0 || model.num_key_value_heads == model.num_attention_heads) {
    return;
  }
  throw user_error("{}: {} has as many key-value heads as heads; use 0, or model.family=llama",
                   named(s, "model.num_key_value_heads"), model.family);
}

void check_head_dim(const TrainConfig& config, const Settings& s) {
  const ModelSettings& model = config.model;
  const std::int64_t heads = model.num_attention_heads;
  if (!model.is_inline()) return;
  if (has_even_heads(model) && model.head_dim != 0 && model.head_dim * heads != model.hidden_size) {
    throw user_error("{}: {}'s heads share hidden_size evenly; use 0", named(s, "model.head_dim"),
                     model.family);
  }
  if (!has_rope(model)) return;
  const std::int64_t dim = model.head_dim != 0 ? model.head_dim : model.hidden_size / heads;
  if (dim % 2 == 0) return;
  if (model.head_dim != 0) {
    throw user_error("{} cannot be rotated in pairs; make it even, e.g. {}",
                     named(s, "model.head_dim"), dim + 1);
  }
  throw user_error("a head of {} / {} = {} cannot be rotated in pairs; use model.hidden_size={}",
                   named(s, "model.hidden_size"), named(s, "model.num_attention_heads"),
                   counted(dim, "element"), fitting_hidden_size(model));
}

void check_positions(const TrainConfig& config, const Settings& s) {
  const std::int64_t most = config.model.max_position_embeddings;
  if (!config.model.is_inline() || most == 0 || config.train.context <= most) return;
  throw user_error("{} is more than {}; raise the latter, or leave it 0", named(s, "train.context"),
                   named(s, "model.max_position_embeddings"));
}

}  // namespace

void add_model(SettingRegistry& settings, TrainConfig& c) {
  ModelSettings& m = c.model;
  settings.group("model",
                 "The model: `model.from`, or `model.config`, or a shape given by the other keys, "
                 "which have the names of Hugging Face's config.json.");
  settings.add("model.from", &m.from, "Hugging Face directory with the weights to start from.")
      .with_scope(Scope::kIsland);
  settings
      .add("model.base", &m.base,
           "Where model.from is an adapter: its base model, in place of the one that it names.")
      .with_scope(Scope::kIsland)
      .needs("model.from", changed("DIRECTORY"), "a base model is of an adapter");
  settings
      .add("model.held_as", &m.held_as,
           "How weights that are not trained lie in memory: `stored`, in the 4, 8 or 16 bits of "
           "their files; `wide`, in train.dtype; `auto`: quantised weights as stored, others wide.",
           one_of({"auto", "stored", "wide"}))
      .needs("model.from", changed("DIRECTORY"), "the weights of a new model are all trained");
  settings.add("model.config", &m.config, "config.json of a new model.")
      .not_beside("model.from", "each says what the model is");
  settings.add("model.family", &m.family, "Kind of model.", families())
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings.add("model.hidden_size", &m.hidden_size, "Width of the residual stream.", at_least(1))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings.add("model.num_hidden_layers", &m.num_hidden_layers, "Blocks.", at_least(1))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings.add("model.num_attention_heads", &m.num_attention_heads, "Query heads.", at_least(1))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .checked(
          "A multiple of model.num_key_value_heads, and a divisor of model.hidden_size where "
          "model.head_dim is 0.",
          check_heads);
  settings
      .add("model.num_key_value_heads", &m.num_key_value_heads,
           "Key and value heads, each shared by a group of query heads; 0: one per query head.",
           at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .checked("gpt2 and gpt_neox: as many as heads, or 0.", check_key_value_heads);
  settings
      .add("model.head_dim", &m.head_dim, "Width of a head; 0: hidden_size / heads.", at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .checked("Even, but for gpt2; the heads of gpt2 and gpt_neox share model.hidden_size evenly.",
               check_head_dim);
  settings
      .add("model.intermediate_size", &m.intermediate_size,
           "Width inside the MLP; 0: gpt2 4 x hidden_size, the others 8/3 of hidden_size rounded "
           "up to a multiple of 32.",
           at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings
      .add("model.max_position_embeddings", &m.max_position_embeddings,
           "Longest context the model can ever take; 0: train.context.", at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .checked("0, or at least train.context.", check_positions);
  settings
      .add("model.rope_theta", &m.rope_theta, "Base of rotary positions; gpt2 has none.", above(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .settled_by("model.family", Values(families_with(&nn::Family::has_rope, false)),
                  "that family has no rotary positions");
  settings
      .add("model.sliding_window", &m.sliding_window,
           "How many tokens back attention sees, itself included; 0: all.", at_least(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown)
      .only_with("model.family", Values(families_with(&nn::Family::has_window_setting)));
  settings.add("model.norm_eps", &m.norm_eps, "Added to the variance in norms.", above(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings
      .add("model.tie_word_embeddings", &m.tie_word_embeddings,
           "Use one matrix for the token embedding and the output.")
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  settings
      .add("model.initializer_range", &m.initializer_range,
           "Standard deviation of initial weights.", above(0))
      .settled_by("model.from", kShapeIsKnown)
      .settled_by("model.config", kShapeIsKnown);
  add_expert_shape(settings, m);
  add_parametrisation(settings, m);
}

}  // namespace atl::train
