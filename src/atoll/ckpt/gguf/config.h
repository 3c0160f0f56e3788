#pragma once

// A model's shape: GGUF metadata to config.json and back.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/ckpt/gguf/gguf.h"
#include "atoll/ckpt/gguf/writer.h"
#include "atoll/nn/latent/latent_shape.h"
#include "atoll/nn/model.h"
#include "atoll/nn/models/gguf_form.h"

namespace atl::ckpt {

/// The parts of a model's shape by which tensors are laid out.
struct GgufShape {
  const nn::GgufForm* form = nullptr;  ///< its family's
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  nn::LatentShape latent = {};  ///< of a model to be written that has one
};

/// What a config.json says, in GGUF's terms.
struct GgufModel {
  GgufShape shape;
  GgufFields fields;                 ///< "general.architecture" and "<architecture>.*"
  std::vector<float> rope_factors;   ///< the tensor rope_freqs.weight; empty without such scaling
  bool is_tied = false;              ///< the head is the embedding: no output.weight
  std::int64_t context_length = 0;   ///< positions up to which llama.cpp computes the same
  bool window_cuts_context = false;  ///< because the model attends to a window, and it does not
};

/// Translates a config.json that is parsed, so that what it leaves out is what atoll takes for it.
/// Throws Error(kUser) naming `origin` and the field for what llama.cpp would compute otherwise or
/// not at all.
GgufModel gguf_model(const nn::ModelConfig& config, const std::string& origin);

/// The config.json for a GGUF file, in `dtype`. Throws Error(kUser) naming the file and the key for
/// an architecture or a setting that atoll does not compute.
std::string config_from_gguf(const GgufFile& file, Dtype dtype);

/// The shape of a GGUF file's model. Throws as config_from_gguf.
GgufShape gguf_shape(const GgufFile& file);

/// Llama 3.1's scaling of rotations (its config.json's "rope_scaling" of rope_type "llama3").
struct Llama3Rope {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_positions = 8192;
};

/// By what each of head_dim / 2 frequencies is divided, as llama.cpp wants it in rope_freqs.weight.
std::vector<float> rope_factors(const Llama3Rope& rope, double theta, std::int64_t head_dim);

/// The scaling that gives these factors, with low and high frequency factors 1 and 4, as all Llama
/// 3 models have, and the original positions `stated` (0: unknown) or 8192. Nothing when none does.
std::optional<Llama3Rope> find_llama3_rope(const std::vector<float>& factors, double theta,
                                           std::int64_t head_dim, std::int64_t stated);

}  // namespace atl::ckpt
