#pragma once

// Which modules of a model LoRA adapts, and how: by their names, as the PEFT library reads them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/text/regex/python_pattern.h"

namespace atl::nn {

/// What PEFT puts before the names of a model's tensors.
inline constexpr const char* kPeftPrefix = "base_model.model.";

/// Which biases of the model are trained beside the adapters.
enum class LoraBias {
  kNone,
  kAdapted,  ///< those of the modules that have adapters ("lora_only")
  kAll,      ///< all of the model's
};

/// Low-rank adapters (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"), named
/// and shaped as the PEFT library's.
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 16;
  /// What to adapt, as a list in PEFT's target_modules: a module matches when it is called so or
  /// ends in ".<target>"; "all-linear" matches every Linear but the head.
  std::vector<std::string> targets;
  bool rank_stabilized = false;  ///< scale alpha / sqrt(rank) instead of alpha / rank
  /// What to adapt, as a text in target_modules: a regular expression of Python's for the whole
  /// name of a module. Stands in place of `targets`.
  std::string target_pattern;
  /// What not to adapt, as exclude_modules: names as in `targets`, or a pattern in place of them.
  std::vector<std::string> excluded;
  std::string excluded_pattern;
  /// The only blocks to adapt, as layers_to_transform; empty: all.
  std::vector<std::int64_t> layers;
  /// What stands before the number of a block, as layers_pattern; empty: anything.
  std::vector<std::string> layer_patterns;
  /// Ranks and alphas of their own, by a pattern for the end of a module's name; the first that
  /// matches counts.
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  /// Modules that are trained whole, and all in them: those whose names end so.
  std::vector<std::string> modules_to_save;
  /// Parameters that are adapted without their modules, as target_parameters: names as `targets`.
  /// Experts that are stacked in one tensor are such: "mlp.experts.down_proj".
  std::vector<std::string> target_parameters;
  /// Tokens whose rows are trained alone, as trainable_token_indices: by the end of their module's
  /// name; an empty name is that of the token embedding.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tokens;
  double dropout = 0;  ///< of an adapter's input, in training
  LoraBias bias = LoraBias::kNone;
  /// DoRA (Liu et al. 2024): each row of an adapted weight has a trained length.
  bool use_dora = false;

  /// s of y = x W^T + s (x A^T) B^T, where there are no ranks or alphas of their own.
  double scale() const;
};

/// The adapter of one module.
struct LoraShape {
  std::int64_t rank = 0;
  double scale = 0;
};

/// LoraOptions with its patterns compiled.
class LoraRules {
 public:
  /// Throws Error(kUser), starting with `where`, for a pattern that is not valid.
  LoraRules(const LoraOptions& options, const std::string& where);

  /// The adapter of a module; nothing where it has none. `in_all_linear`: whether "all-linear"
  /// means it too. Throws Error(kUser) where a pattern takes too long.
  std::optional<LoraShape> of_module(const std::string& module, bool in_all_linear) const;
  /// The adapter of a parameter that target_parameters names, such as "model.layers.0.mlp.w".
  std::optional<LoraShape> of_parameter(const std::string& name) const;
  /// Whether modules_to_save names the module, or one that it is in.
  bool saves(std::string_view module) const;

 private:
  bool is_excluded(const std::string& module) const;
  bool is_in_layers(const std::string& module) const;
  LoraShape shape_of(const std::string& name) const;

  LoraOptions options_;
  std::optional<text::PythonPattern> target_, excluded_;
  std::vector<text::PythonPattern> saved_, layers_, ranks_, alphas_;
};

/// Whether a module is called `name`, or ends in ".<name>".
bool is_called(std::string_view module, std::string_view name);

}  // namespace atl::nn
