#pragma once

// Models that read pictures beside text: a language model of a known family, a vision model, and
// what joins them. atoll takes the language model alone.

#include <optional>
#include <string>
#include <string_view>

namespace atl::nn {

/// The language model within a multimodal model.
struct LanguagePart {
  /// Its config.json, as of a model that never had another part: fields that the file leaves to
  /// transformers' defaults are written out.
  std::string config_json;
  /// Whether the file says if the head is the embedding. Where it does not, its tensors do: see
  /// with_tied_head.
  bool says_tied_head = true;
};

/// The language part of the config.json of a multimodal model: Gemma 3, Mistral 3, LLaVA (also
/// NeXT and OneVision), Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Idefics 3, SmolVLM, InternVL as
/// transformers has it. Nothing for a config.json of any other "model_type". With text alone, their
/// rotations by time, height and width (mrope) are the plain ones, since the three positions of a
/// text token are equal; that is how they are read. Says once for each `origin`, which names the
/// file, that the rest is left out. Throws Error(kUser) naming the field when the language model is
/// of no known family, Error(kDamaged) when `json` is no JSON object.
std::optional<LanguagePart> language_part(std::string_view json, const std::string& origin);

/// A config.json in which "tie_word_embeddings" is `tied`.
std::string with_tied_head(const std::string& config_json, bool tied);

/// What the language model alone calls a tensor of a multimodal model's files, by transformers of
/// any version; empty for a tensor of the other parts. A name of neither comes back as it is.
std::string language_tensor(std::string_view name);

}  // namespace atl::nn
