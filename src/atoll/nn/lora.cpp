#include "atoll/nn/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "atoll/base/error.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::nn {

namespace {

// An adapter's part of one fused weight: W[rows] += s B A.
struct LoraPart {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::string a_name;  // file tensor (r, in)
  std::string b_name;  // file tensor (rows, r)
};

std::string last_name(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
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

std::string joined(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::set<std::string> last_names(const Linears& found) {
  std::set<std::string> names;
  for (const Linear* linear : found.linears) {
    for (const FileTensor& part : linear->weight().files) names.insert(last_name(module_of(part)));
  }
  return names;
}

// Whether any Linear's part has a name for which `matches` says so.
template <typename Matches>
bool any_module(const Linears& found, Matches&& matches) {
  return std::any_of(found.linears.begin(), found.linears.end(), [&](const Linear* linear) {
    const auto& files = linear->weight().files;
    return std::any_of(files.begin(), files.end(),
                       [&](const FileTensor& part) { return matches(module_of(part)); });
  });
}

// Whether a target means only what a run can train whole, not beside an adapter.
bool is_embedding_or_head(const Linears& found, const std::string& target) {
  return std::any_of(found.params.begin(), found.params.end(), [&](const Param* param) {
    return param->is_embedding && is_called(module_of(param->files.front()), target);
  });
}

void refuse_unmatched(const Linears& found, const LoraOptions& options, const LoraRules& rules) {
  const std::set<std::string> names = last_names(found);
  if (options.targets.empty() && options.target_pattern.empty()) {
    throw user_error("LoRA without targets adapts nothing; name some of: {}, or all-linear",
                     joined(names));
  }
  const bool is_all = options.targets == std::vector<std::string>{"all-linear"};
  for (const std::string& target : options.targets) {
    if (is_all || any_module(found, [&](const auto& name) { return is_called(name, target); })) {
      continue;
    }
    if (is_embedding_or_head(found, target)) {
      throw user_error(
          "LoRA target \"{}\" is an embedding or the head, which a run trains whole or not at all: "
          "name it in lora.modules_to_save in place of lora.targets",
          target);
    }
    throw user_error(
        "LoRA target \"{}\" matches no module of this model; there are: {}, or all-linear", target,
        joined(names));
  }
  if (any_module(found, [&](const auto& name) { return rules.of_module(name, true).has_value(); }))
    return;
  throw user_error(
      "LoRA adapts no module of this model{}; the modules are called as in "
      "model.layers.0.self_attn.q_proj, and end in: {}",
      options.target_pattern.empty()
          ? std::string()
          : fmt::format(" (the pattern \"{}\" must match the whole name)", options.target_pattern),
      joined(names));
}

std::string peft_name(const FileTensor& file) {
  return kPeftPrefix + module_of(file);
}

std::string b_name(const FileTensor& file) {
  return peft_name(file) + ".lora_B.weight";
}

// The parts of one weight that are adapted.
std::vector<LoraPart> parts_of(const Param& weight, const LoraRules& rules) {
  std::vector<LoraPart> parts;
  for (const FileTensor& file : weight.files) {
    if (!rules.of_module(module_of(file), /*in_all_linear=*/true)) continue;
    parts.push_back({file.row_begin, file.rows, peft_name(file) + ".lora_A.weight", b_name(file)});
  }
  return parts;
}

// The factors of a whole weight's adapter.
struct Factors {
  Param a, b;
};

Factors factors_of(const Param& weight, const std::vector<LoraPart>& parts,
                   const LoraOptions& options) {
  const Dtype dtype = weight.spec.dtype;
  const std::int64_t in = weight.spec.shape.dim(1);
  Factors factors;
  auto& [a, b] = factors;
  std::int64_t number = 0;
  std::int64_t rows = 0;
  for (const LoraPart& part : parts) {
    a.files.push_back({part.a_name, number++ * options.rank, options.rank, false});
    b.files.push_back({part.b_name, rows, part.rows, false});
    rows += part.rows;
  }
  a.name = weight.name + " lora_A";
  b.name = weight.name + " lora_B";
  a.spec = {dtype, {number * options.rank, in}};
  b.spec = {dtype, {rows, options.rank}};
  // The variance of PEFT's uniform start, U(-1/sqrt(in), 1/sqrt(in)).
  a.init = Init::normal(1.0 / std::sqrt(3.0 * static_cast<double>(in)));
  b.init = Init::zero();
  a.decay = b.decay = true;
  return factors;
}

// What a slice of a weight has of the rows that are adapted, as rows of B.
std::vector<Slice::Rows> adapted_rows(const Slice& slice, const std::vector<LoraPart>& parts) {
  std::vector<Slice::Rows> rows;
  std::int64_t before = 0;  // rows of B of the parts before
  for (const LoraPart& part : parts) {
    for (const Slice::Rows& stretch : slice.rows) {
      const std::int64_t begin = std::max(stretch.begin, part.row_begin);
      const std::int64_t end = std::min(stretch.begin + stretch.count, part.row_begin + part.rows);
      if (begin < end) rows.push_back({before + begin - part.row_begin, end - begin});
    }
    before += part.rows;
  }
  return rows;
}

// The factors of a part of a weight. Ranks that have some of its rows have these rows of B, and
// each a part of A's gradient; ranks that have some of its columns have these columns of A, and
// each a part of B's gradient.
Factors cut_factors(Factors whole, const Param& weight, const std::vector<LoraPart>& parts,
                    const Axis* axis) {
  const Cut& cut = *weight.cut;
  const std::int64_t columns = whole.a.spec.shape.dim(1);
  const bool by_columns =
      std::any_of(cut.slices.begin(), cut.slices.end(),
                  [&](const Slice& slice) { return slice.num_columns != columns; });
  std::vector<Slice> slices;
  if (by_columns) {
    for (const Slice& slice : cut.slices) {
      slices.push_back({{{0, whole.a.spec.shape.dim(0)}}, slice.column_begin, slice.num_columns});
    }
    whole.a = cut_param(std::move(whole.a), std::move(slices), cut.rank);
    whole.b.shared_by = {{axis, 0}};
    return whole;
  }
  for (const Slice& slice : cut.slices) {
    slices.push_back({adapted_rows(slice, parts), 0, whole.b.spec.shape.dim(1)});
  }
  whole.b = cut_param(std::move(whole.b), std::move(slices), cut.rank);
  whole.a.shared_by = {{axis, 0}};
  // Rows that other ranks have too, of key-value heads.
  if (weight.shared_by.empty()) return whole;
  const Sharing copies = weight.shared_by.front();
  std::int64_t own = 0;
  for (const FileTensor& file : weight.files) {
    if (file.row_begin >= copies.row) continue;
    const bool is_adapted =
        std::any_of(whole.b.files.begin(), whole.b.files.end(),
                    [&](const FileTensor& b) { return b.name == b_name(file); });
    if (is_adapted) own += file.rows;
  }
  if (own == whole.b.spec.shape.dim(0)) return whole;
  whole.b.shared_by = {{copies.axis, own}};
  return whole;
}

void add_adapter(Model& model, Linear& linear, const std::vector<LoraPart>& parts,
                 const LoraOptions& options, const LoraRules& rules) {
  const Param& weight = linear.weight();
  std::vector<ops::DiagonalBlock> blocks;
  for (const LoraPart& part : parts) blocks.push_back({part.row_begin, part.rows});
  const Param& whole = whole_param(weight);
  const std::vector<LoraPart> whole_parts = parts_of(whole, rules);
  Factors factors = factors_of(whole, whole_parts, options);
  if (weight.cut) {
    factors = cut_factors(std::move(factors), weight, whole_parts, model.tensor.get());
  }
  linear.add_adapter(std::move(factors.a), std::move(factors.b), std::move(blocks),
                     options.scale());
}

}  // namespace

namespace {

// Draws of adapters' dropouts, behind those of the model's own.
constexpr int kFirstDropout = 1 << 15;

// A parameter that is trained whole goes into the adapter's file, under PEFT's name.
void train_whole(Param& param, const LoraRules& rules, std::set<std::string>& found) {
  const auto saved =
      std::count_if(param.files.begin(), param.files.end(),
                    [&](const FileTensor& file) { return rules.saves(module_of(file)); });
  if (saved == 0) return;
  const std::string first = module_of(param.files.front());
  if (saved != std::ssize(param.files)) {
    throw user_error(
        "lora.modules_to_save names a part of {}, which one parameter holds together with {}: name "
        "all of them or none",
        param.name, module_of(param.files.back()));
  }
  if (param.cut) {
    throw user_error(
        "lora.modules_to_save names {}, of which each rank has a part (parallel.tp): train it on "
        "ranks that have all of it (dp.zero shares the memory)",
        first);
  }
  for (FileTensor& file : param.files) {
    found.insert(module_of(file));
    file.name = kPeftPrefix + file.name;
  }
  param.frozen = false;
}

void train_whole_modules(const Linears& all, const Model& model, const LoraOptions& options,
                         const LoraRules& rules) {
  std::set<std::string> found;
  for (Param* param : all.params) {
    if (model.config.tie_embeddings && param->is_embedding && !param->is_position &&
        rules.saves(module_of(param->files.front()))) {
      throw user_error(
          "lora.modules_to_save names {}, which this model's head shares; the adapter would have "
          "to "
          "hold it twice: train all weights (lora.rank=0), or leave it out",
          module_of(param->files.front()));
    }
    train_whole(*param, rules, found);
  }
  for (const std::string& name : options.modules_to_save) {
    const LoraRules one({.modules_to_save = {name}}, "lora.modules_to_save");
    if (std::any_of(found.begin(), found.end(), [&](const auto& at) { return one.saves(at); })) {
      continue;
    }
    throw user_error("lora.modules_to_save: no module of this model is called \"{}\"", name);
  }
}

}  // namespace

bool is_lora_factor(const Param& param) {
  return !param.files.empty() && param.files.front().name.find(".lora_") != std::string::npos;
}

void add_lora(Model& model, const LoraOptions& options) {
  if (!options.ranks.empty() || !options.alphas.empty() || !options.target_parameters.empty()) {
    throw user_error(
        "adapters with rank_pattern, alpha_pattern or target_parameters are read and merged, not "
        "trained");
  }
  const LoraRules rules(options, "lora.targets");
  const Linears found(model);
  refuse_unmatched(found, options, rules);
  for (Param* param : found.params) param->frozen = true;
  for (std::size_t i = 0; i < found.linears.size(); ++i) {
    Linear& linear = *found.linears[i];
    const std::vector<LoraPart> parts = parts_of(linear.weight(), rules);
    if (parts.empty()) continue;
    add_adapter(model, linear, parts, options, rules);
    if (options.dropout > 0) {
      linear.drop_adapter_input(options.dropout, kFirstDropout + static_cast<int>(i));
    }
  }
  train_whole_modules(found, model, options, rules);
}

std::vector<std::string> lora_modules(Model& model) {
  const std::set<std::string> names = last_names(Linears(model));
  return {names.begin(), names.end()};
}

}  // namespace atl::nn
