#pragma once

// What a model's files call its tensors, and the modules that other libraries see behind the names.

#include <string>
#include <string_view>
#include <vector>

#include "atoll/nn/model.h"

namespace atl::nn {

/// What the files of every family but gpt_neox call the head.
inline constexpr const char* kHeadModule = "lm_head";
/// What gpt_neox's call it.
inline constexpr const char* kNeoxHeadModule = "embed_out";
/// Whether a tensor of this name is the weight of some family's head.
bool is_head_weight(std::string_view name);

/// What a tensor is a part of.
enum class ModuleKind {
  kOther,  ///< norms
  kLinear,
  kHead,       ///< a head with a weight of its own
  kEmbedding,  ///< of tokens, also for a head that shares it, or of positions
  kRouter,     ///< chooses experts
  kExpert,     ///< a matrix of one of them
};

/// One tensor of a model's files.
struct ModelTensor {
  Param* param = nullptr;  ///< that has its rows
  FileTensor file;
  std::string module;  ///< "model.layers.0.self_attn.q_proj"
  ModuleKind kind = ModuleKind::kOther;
  bool is_bias = false;
};

/// All tensors of a model, each once, in the order in which the model is visited.
std::vector<ModelTensor> model_tensors(Model& model);

/// The module that a tensor of a file belongs to: its name without ".weight" or ".bias".
std::string module_of(const FileTensor& file);

}  // namespace atl::nn
