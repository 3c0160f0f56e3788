#pragma once

// What a model's files call its tensors, and the modules that other libraries see behind the names.

#include <string>
#include <vector>

#include "atoll/nn/model.h"

namespace atl::nn {

/// What every family's files call the head.
inline constexpr const char* kHeadModule = "lm_head";

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
