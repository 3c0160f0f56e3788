#include "atoll/nn/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "atoll/base/error.h"
#include "atoll/nn/linear.h"

namespace atl::nn {

namespace {

// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string module_of(const FileTensor& part) {
  return part.name.substr(0, part.name.rfind(".weight"));
}

std::string last_name(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

bool matches(const std::string& module, const std::string& target) {
  return target == "all-linear" || module == target || module.ends_with("." + target);
}

// The Linears of a model, each once.
class Linears final : public ParamVisitor {
 public:
  explicit Linears(Model& model) { model.visit(*this); }
  void param(Param& param) override { params.insert(&param); }
  void linear(Linear& linear) override { linears.push_back(&linear); }

  std::vector<Linear*> linears;
  std::set<Param*> params;
};

void refuse_unmatched(const Linears& found, const LoraOptions& options) {
  std::set<std::string> names;
  for (const Linear* linear : found.linears) {
    for (const FileTensor& part : linear->weight().files) names.insert(last_name(module_of(part)));
  }
  if (options.targets.empty()) {
    throw user_error("LoRA without targets adapts nothing; name some of: {}, or all-linear",
                     fmt::join(names, ", "));
  }
  for (const std::string& target : options.targets) {
    const bool used = std::any_of(found.linears.begin(), found.linears.end(), [&](Linear* linear) {
      const auto& files = linear->weight().files;
      return std::any_of(files.begin(), files.end(),
                         [&](const FileTensor& part) { return matches(module_of(part), target); });
    });
    if (used) continue;
    throw user_error(
        "LoRA target \"{}\" matches no module of this model; there are: {}, or "
        "all-linear",
        target, fmt::join(names, ", "));
  }
}

// The parts of one Linear that the targets match.
std::vector<LoraPart> parts_of(const Linear& linear, const LoraOptions& options) {
  std::vector<LoraPart> parts;
  for (const FileTensor& file : linear.weight().files) {
    const std::string module = module_of(file);
    const bool wanted =
        std::any_of(options.targets.begin(), options.targets.end(),
                    [&](const std::string& target) { return matches(module, target); });
    if (!wanted) continue;
    const std::string peft = "base_model.model." + module;
    parts.push_back({&linear.weight(), file.row_begin, file.rows, peft + ".lora_A.weight",
                     peft + ".lora_B.weight"});
  }
  return parts;
}

void add_adapter(Linear& linear, const std::vector<LoraPart>& parts, const LoraOptions& options) {
  const Param& weight = linear.weight();
  const Dtype dtype = weight.spec.dtype;
  const std::int64_t in = weight.spec.shape.dim(1);
  Param a;
  Param b;
  std::vector<ops::DiagonalBlock> blocks;
  std::int64_t rows = 0;
  for (const LoraPart& part : parts) {
    const auto number = static_cast<std::int64_t>(blocks.size());
    a.files.push_back({part.a_name, number * options.rank, options.rank, false});
    b.files.push_back({part.b_name, rows, part.rows, false});
    blocks.push_back({part.row_begin, part.rows});
    rows += part.rows;
  }
  a.name = weight.name + " lora_A";
  b.name = weight.name + " lora_B";
  a.spec = {dtype, {static_cast<std::int64_t>(parts.size()) * options.rank, in}};
  b.spec = {dtype, {rows, options.rank}};
  // The variance of PEFT's uniform start, U(-1/sqrt(in), 1/sqrt(in)).
  a.init = Init::normal(1.0 / std::sqrt(3.0 * static_cast<double>(in)));
  b.init = Init::zero();
  a.decay = b.decay = true;
  linear.add_adapter(std::move(a), std::move(b), std::move(blocks), options.scale());
}

}  // namespace

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

void add_lora(Model& model, const LoraOptions& options) {
  const Linears found(model);
  refuse_unmatched(found, options);
  for (Param* param : found.params) param->frozen = true;
  for (Linear* linear : found.linears) {
    const std::vector<LoraPart> parts = parts_of(*linear, options);
    if (!parts.empty()) add_adapter(*linear, parts, options);
  }
}

std::vector<std::string> lora_modules(Model& model) {
  std::set<std::string> names;
  for (const Linear* linear : Linears(model).linears) {
    for (const FileTensor& part : linear->weight().files) names.insert(last_name(module_of(part)));
  }
  return {names.begin(), names.end()};
}

std::vector<LoraPart> lora_parts(Model& model, const LoraOptions& options) {
  const Linears found(model);
  refuse_unmatched(found, options);
  std::vector<LoraPart> all;
  for (const Linear* linear : found.linears) {
    const std::vector<LoraPart> parts = parts_of(*linear, options);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace atl::nn
