#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/nn/model.h"

namespace atl::nn {

/// Low-rank adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"), named
/// and shaped as the PEFT library's.
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;
  /// What to adapt, as PEFT's target_modules: a module matches when it is called so or ends in
  /// ".<target>"; "all-linear" matches every Linear but the head.
  std::vector<std::string> targets;
  bool rank_stabilized = false;  ///< scale alpha / sqrt(rank) instead of alpha / rank

  /// s of y = x W^T + s (x A^T) B^T.
  double scale() const;
};

/// Freezes every parameter of `model` and adds adapters to the Linears that the targets match: A
/// starts random, B zero, so that nothing changes at first. Call it before the model's parameters
/// get memory. Throws Error(kUser) naming the target that matches nothing, and what there is.
void add_lora(Model& model, const LoraOptions& options);

/// The modules of `model` that LoRA can adapt, by their last name, each once: "q_proj", "c_attn".
std::vector<std::string> lora_modules(Model& model);

/// An adapter's part of one fused weight, for merging: W[rows] += s B A.
struct LoraPart {
  const Param* weight = nullptr;  ///< (out, in)
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::string a_name;  ///< file tensor (r, in)
  std::string b_name;  ///< file tensor (rows, r)
};
/// The parts of `model` that the targets match, adapters or not; same errors as add_lora.
std::vector<LoraPart> lora_parts(Model& model, const LoraOptions& options);

}  // namespace atl::nn
