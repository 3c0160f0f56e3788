#include "atoll/nn/adapters/lora_whole.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "atoll/base/error.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::nn {

namespace {

void refuse_part(const Param& param, const char* setting) {
  if (!param.cut) return;
  throw user_error(
      "{} names {}, of which each rank has a part (parallel.tp): train it on ranks that have all "
      "of it (dp.zero shares the memory)",
      setting, module_of(param.files.front()));
}

// A parameter that is trained whole goes into the adapter's file, under PEFT's name.
void train_whole(Param& param, const LoraRules& rules, std::set<std::string>& found) {
  const auto saved =
      std::count_if(param.files.begin(), param.files.end(),
                    [&](const FileTensor& file) { return rules.saves(module_of(file)); });
  if (saved == 0) return;
  if (saved != std::ssize(param.files)) {
    throw user_error(
        "lora.modules_to_save names a part of {}, which one parameter holds together with {}: name "
        "all of them or none",
        param.name, module_of(param.files.back()));
  }
  refuse_part(param, "lora.modules_to_save");
  for (FileTensor& file : param.files) {
    found.insert(module_of(file));
    file.name = kPeftPrefix + file.name;
  }
  param.frozen = false;
}

bool is_adapted(const FileTensor& bias, const LoraRules& rules) {
  return rules.of_module(module_of(bias), /*in_all_linear=*/true).has_value();
}

// PEFT wraps the modules that it adapts.
std::string peft_name_of_bias(const FileTensor& bias, const LoraRules& rules) {
  return kPeftPrefix + module_of(bias) + (is_adapted(bias, rules) ? ".base_layer" : "") + ".bias";
}

}  // namespace

void train_saved_modules(const Model& model, const std::vector<Param*>& params,
                         const LoraOptions& options, const LoraRules& rules) {
  std::set<std::string> found;
  for (Param* param : params) {
    train_whole(*param, rules, found);
    // PEFT reads the table under both names.
    if (model.config.tie_embeddings && param->is_embedding && !param->is_position &&
        !param->frozen) {
      const std::int64_t rows = param->spec.shape.dim(0);
      param->files.push_back(
          {fmt::format("{}{}.weight", kPeftPrefix, kHeadModule), 0, rows, /*transposed=*/false});
    }
  }
  for (const std::string& name : options.modules_to_save) {
    const LoraRules one({.modules_to_save = {name}}, "lora.modules_to_save");
    if (std::any_of(found.begin(), found.end(), [&](const auto& at) { return one.saves(at); })) {
      continue;
    }
    throw user_error("lora.modules_to_save: no module of this model is called \"{}\"", name);
  }
}

bool saves_tied_embedding(const Model& model) {
  struct Finder final : ParamVisitor {
    void param(Param& param) override {
      found = found || (param.is_embedding && !param.is_position && !param.frozen);
    }
    bool found = false;
  } finder;
  model.visit(finder);
  return model.config.tie_embeddings && finder.found;
}

void train_biases(const std::vector<Param*>& params, const LoraOptions& options,
                  const LoraRules& rules) {
  if (options.bias == LoraBias::kNone) return;
  bool any = false;
  for (Param* param : params) {
    if (!param->files.front().name.ends_with(".bias") || !param->frozen) continue;
    const auto adapted =
        std::count_if(param->files.begin(), param->files.end(),
                      [&](const FileTensor& file) { return is_adapted(file, rules); });
    if (options.bias == LoraBias::kAdapted && adapted == 0) continue;
    if (options.bias == LoraBias::kAdapted && adapted != std::ssize(param->files)) {
      throw user_error(
          "lora.bias = \"lora_only\" trains a part of {}, which one parameter holds: target all of "
          "its modules (q_proj, k_proj and v_proj) or none, or use lora.bias=all",
          param->name);
    }
    refuse_part(*param, "lora.bias");
    for (FileTensor& file : param->files) file.name = peft_name_of_bias(file, rules);
    param->frozen = false;
    any = true;
  }
  if (any) return;
  throw user_error("lora.bias: {}; use lora.bias=none",
                   options.bias == LoraBias::kAll ? "this model has no biases"
                                                  : "no module with an adapter has a bias");
}

}  // namespace atl::nn
