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

std::string peft_name(const FileTensor& file) {
  return "base_model.model." + module_of(file);
}

std::string b_name(const FileTensor& file) {
  return peft_name(file) + ".lora_B.weight";
}

// The parts of one weight that the targets match.
std::vector<LoraPart> parts_of(const Param& weight, const LoraOptions& options) {
  std::vector<LoraPart> parts;
  for (const FileTensor& file : weight.files) {
    const std::string module = module_of(file);
    const bool wanted =
        std::any_of(options.targets.begin(), options.targets.end(),
                    [&](const std::string& target) { return matches(module, target); });
    if (!wanted) continue;
    parts.push_back(
        {&weight, file.row_begin, file.rows, peft_name(file) + ".lora_A.weight", b_name(file)});
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
                 const LoraOptions& options) {
  const Param& weight = linear.weight();
  std::vector<ops::DiagonalBlock> blocks;
  for (const LoraPart& part : parts) blocks.push_back({part.row_begin, part.rows});
  const Param& whole = whole_param(weight);
  const std::vector<LoraPart> whole_parts = parts_of(whole, options);
  Factors factors = factors_of(whole, whole_parts, options);
  if (weight.cut) {
    factors = cut_factors(std::move(factors), weight, whole_parts, model.tensor.get());
  }
  linear.add_adapter(std::move(factors.a), std::move(factors.b), std::move(blocks),
                     options.scale());
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
    const std::vector<LoraPart> parts = parts_of(linear->weight(), options);
    if (!parts.empty()) add_adapter(model, *linear, parts, options);
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
    const std::vector<LoraPart> parts = parts_of(linear->weight(), options);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace atl::nn
