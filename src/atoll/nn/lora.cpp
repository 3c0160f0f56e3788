#include "atoll/nn/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/first_factor.h"
#include "atoll/nn/adapters/lora_experts.h"
#include "atoll/nn/adapters/lora_tokens.h"
#include "atoll/nn/adapters/lora_whole.h"
#include "atoll/nn/adapters/low_rank_embedding.h"
#include "atoll/nn/adapters/low_rank_head.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::nn {

namespace {

// An adapter's part of one fused weight: W[rows] += s B A.
struct LoraPart {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::string module;  // as PEFT calls it
};

std::string last_name(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

// The Linears of a model, each once.
class Linears final : public ParamVisitor {
 public:
  explicit Linears(Model& model) { model.visit(*this); }
  void param(Param& param) override {
    if (std::find(params.begin(), params.end(), &param) == params.end()) params.push_back(&param);
  }
  void linear(Linear& linear) override { linears.push_back(&linear); }

  std::vector<Linear*> linears;
  std::vector<Param*> params;
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

// The token embedding that the rules adapt, if they do.
const Param* adapted_embedding(const Linears& found, const LoraRules& rules) {
  for (const Param* param : found.params) {
    if (!param->is_embedding || param->is_position) continue;
    const std::string module = module_of(param->files.front());
    if (is_head_weight(param->files.front().name)) continue;
    if (rules.of_module(module, /*in_all_linear=*/false)) return param;
  }
  return nullptr;
}

// Whether a target means only what a run can train whole, not beside an adapter.
bool is_position(const Linears& found, const std::string& target) {
  return std::any_of(found.params.begin(), found.params.end(), [&](const Param* param) {
    return param->is_position && is_called(module_of(param->files.front()), target);
  });
}

// What files call the head; a tied one has no tensor of its own.
std::string head_module(const Linears& found) {
  for (const Param* param : found.params) {
    if (is_head_weight(param->files.front().name)) return module_of(param->files.front());
  }
  return kHeadModule;
}

std::optional<LoraShape> adapted_head(const Linears& found, const LoraRules& rules) {
  return rules.of_module(head_module(found), /*in_all_linear=*/false);
}

bool is_embedding(const Linears& found, const std::string& target) {
  return std::any_of(found.params.begin(), found.params.end(), [&](const Param* param) {
    return param->is_embedding && !param->is_position &&
           is_called(module_of(param->files.front()), target);
  });
}

void refuse_unmatched(const Linears& found, const LoraOptions& options, const LoraRules& rules) {
  const std::set<std::string> names = last_names(found);
  if (options.targets.empty() && options.target_pattern.empty()) {
    if (!options.target_parameters.empty() || !options.tokens.empty()) return;
    throw user_error("LoRA without targets adapts nothing; name some of: {}, or all-linear",
                     joined(names));
  }
  const bool is_all = options.targets == std::vector<std::string>{"all-linear"};
  for (const std::string& target : options.targets) {
    if (is_all || any_module(found, [&](const auto& name) { return is_called(name, target); })) {
      continue;
    }
    if (is_position(found, target)) {
      throw user_error(
          "LoRA target \"{}\" is a position embedding, which a run trains whole or not at all: "
          "name it in lora.modules_to_save in place of lora.targets",
          target);
    }
    if (is_embedding(found, target) || is_called(head_module(found), target)) continue;
    throw user_error(
        "LoRA target \"{}\" matches no module of this model; there are: {}, or all-linear", target,
        joined(names));
  }
  if (adapted_embedding(found, rules) != nullptr || adapted_head(found, rules) ||
      any_module(found, [&](const auto& name) { return rules.of_module(name, true).has_value(); }))
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

constexpr const char* kB = ".lora_B.weight";
constexpr const char* kLengths = ".lora_magnitude_vector";

// The parts of one weight that are adapted with one rank and one scale.
struct LoraGroup {
  LoraShape shape;
  std::vector<LoraPart> parts;
};

std::vector<LoraGroup> groups_of(const Param& weight, const LoraRules& rules) {
  std::vector<LoraGroup> groups;
  for (const FileTensor& file : weight.files) {
    const auto shape = rules.of_module(module_of(file), /*in_all_linear=*/true);
    if (!shape) continue;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const LoraGroup& group) {
      return group.shape.rank == shape->rank && group.shape.scale == shape->scale;
    });
    LoraGroup& group = same != groups.end() ? *same : groups.emplace_back(LoraGroup{*shape, {}});
    group.parts.push_back({file.row_begin, file.rows, peft_name(file)});
  }
  return groups;
}

// The factors of a whole weight's adapter, and with DoRA the lengths of its rows.
struct Factors {
  Param a, b, magnitude;
};

Factors factors_of(const Param& weight, const LoraGroup& group, std::size_t index, bool use_dora) {
  const std::int64_t rank = group.shape.rank;
  const Dtype dtype = weight.spec.dtype;
  const std::int64_t in = weight.spec.shape.dim(1);
  Factors factors;
  auto& [a, b, magnitude] = factors;
  std::int64_t number = 0;
  std::int64_t rows = 0;
  for (const LoraPart& part : group.parts) {
    a.files.push_back({part.module + ".lora_A.weight", number++ * rank, rank, false});
    b.files.push_back({part.module + kB, rows, part.rows, false});
    magnitude.files.push_back({part.module + kLengths, rows, part.rows, false});
    rows += part.rows;
  }
  const std::string which = index == 0 ? "" : fmt::format(" {}", index + 1);
  a.name = weight.name + " lora_A" + which;
  b.name = weight.name + " lora_B" + which;
  a.spec = {dtype, {number * rank, in}};
  b.spec = {dtype, {rows, rank}};
  a.init = first_of_a(in);
  b.init = Init::zero();
  a.decay = b.decay = true;
  if (!use_dora) return factors;
  magnitude.name = weight.name + " lora_magnitude_vector" + which;
  magnitude.spec = {dtype, {rows}};
  magnitude.init = Init::one();  // load_parameters() then has the weight's lengths
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
                    [&](const FileTensor& b) { return b.name == peft_name(file) + kB; });
    if (is_adapted) own += file.rows;
  }
  if (own == whole.b.spec.shape.dim(0)) return whole;
  whole.b.shared_by = {{copies.axis, own}};
  return whole;
}

void add_adapters(Model& model, Linear& linear, const LoraRules& rules, bool use_dora) {
  const Param& weight = linear.weight();
  const std::vector<LoraGroup> whole = groups_of(whole_param(weight), rules);
  const std::vector<LoraGroup> here = groups_of(weight, rules);
  for (std::size_t i = 0; i < here.size(); ++i) {
    std::vector<ops::DiagonalBlock> blocks;
    for (const LoraPart& part : here[i].parts) blocks.push_back({part.row_begin, part.rows});
    Factors factors = factors_of(whole_param(weight), whole[i], i, use_dora);
    if (weight.cut && use_dora) {
      throw user_error(
          "lora.dora: {} is cut among ranks (parallel.tp), which do not have the lengths of its "
          "rows; leave parallel.tp out (dp.zero shares the memory)",
          weight.name);
    }
    if (weight.cut) {
      factors = cut_factors(std::move(factors), weight, whole[i].parts, model.tensor.get());
    } else {
      // Ranks that all have a weight, each with a part of its gradient, have that of the factors.
      for (Param* factor : {&factors.a, &factors.b, &factors.magnitude}) {
        factor->shared_by = weight.shared_by;
      }
    }
    linear.add_adapter(std::move(factors.a), std::move(factors.b), std::move(blocks),
                       whole[i].shape.scale, std::move(factors.magnitude));
  }
}

// A starts zero and B random, as PEFT has it for embeddings.
void adapt_embedding(Model& model, const Param& table, const LoraOptions& options,
                     const LoraRules& rules) {
  const std::string module = module_of(table.files.front());
  if (table.cut || options.use_dora) {
    throw user_error("LoRA target {}: an embedding is not adapted {}; leave one of the two out",
                     module,
                     table.cut ? "while ranks share it (parallel.tp)" : "with lengths (lora.dora)");
  }
  const LoraShape shape = *rules.of_module(module, /*in_all_linear=*/false);
  const std::int64_t vocab = table.spec.shape.dim(0);
  const std::int64_t width = table.spec.shape.dim(1);
  Param a;
  Param b;
  a.name = table.name + " lora_embedding_A";
  b.name = table.name + " lora_embedding_B";
  a.spec = {table.spec.dtype, {vocab, shape.rank}};
  b.spec = {table.spec.dtype, {width, shape.rank}};
  a.files = {{kPeftPrefix + module + ".lora_embedding_A", 0, vocab, /*transposed=*/true}};
  b.files = {{kPeftPrefix + module + ".lora_embedding_B", 0, width, false}};
  a.init = Init::zero();
  b.init = Init::normal(1);
  a.decay = b.decay = true;
  std::unique_ptr<Layer>& stage = model.stages.front();
  stage = std::make_unique<LowRankEmbedding>(std::move(stage), std::move(a), std::move(b),
                                             shape.scale * model.config.embedding_scale);
}

// As a Linear's; a head that shares the embedding's table leaves the embedding as it is.
void adapt_head(Model& model, const std::string& module, const LoraShape& shape,
                const LoraOptions& options) {
  const auto refuse = [&](std::string_view why, std::string_view remedy) {
    throw user_error("LoRA target {}: the head is not adapted {}; {}", module, why, remedy);
  };
  constexpr const char* kWhole = "leave it out, or train it whole (lora.modules_to_save)";
  if (model.head == nullptr) {
    refuse("while ranks share it (parallel.tp), nor where its logits are capped or scaled", kWhole);
  }
  if (model.options.device != DeviceKind::kCpu) refuse("on a GPU", kWhole);
  if (options.use_dora) refuse("with lengths (lora.dora)", "leave one of the two out");
  if (options.dropout > 0) refuse("with lora.dropout", "leave one of the two out");
  const Param& weight = *model.head->weight();
  const std::int64_t vocab = weight.spec.shape.dim(0);
  const std::int64_t width = weight.spec.shape.dim(1);
  Param a;
  Param b;
  a.name = module + " lora_A";
  b.name = module + " lora_B";
  a.spec = {weight.spec.dtype, {shape.rank, width}};
  b.spec = {weight.spec.dtype, {vocab, shape.rank}};
  a.files = {{kPeftPrefix + module + ".lora_A.weight", 0, shape.rank, false}};
  b.files = {{kPeftPrefix + module + kB, 0, vocab, false}};
  a.init = first_of_a(width);
  b.init = Init::zero();
  a.decay = b.decay = true;
  std::unique_ptr<Layer>& stage = model.stages.back();
  stage = std::make_unique<LowRankHead>(std::move(stage), std::move(a), std::move(b), shape.scale);
}

// Draws of adapters' dropouts, behind those of the model's own.
constexpr int kFirstDropout = 1 << 15;

}  // namespace

bool is_lora_factor(const Param& param) {
  if (is_trained_rows(param)) return true;
  return !param.files.empty() && param.files.front().name.find(".lora_") != std::string::npos;
}

std::string weight_of_lengths(const FileTensor& file) {
  const std::string_view prefix = kPeftPrefix;
  if (!file.name.starts_with(prefix) || !file.name.ends_with(kLengths)) return "";
  return module_of(file).substr(prefix.size()) + ".weight";
}

void add_lora(Model& model, const LoraOptions& options) {
  const LoraRules rules(options, "lora.targets");
  const Linears found(model);
  refuse_unmatched(found, options, rules);
  for (Param* param : found.params) param->frozen = true;
  for (std::size_t i = 0; i < found.linears.size(); ++i) {
    Linear& linear = *found.linears[i];
    if (groups_of(linear.weight(), rules).empty()) continue;
    add_adapters(model, linear, rules, options.use_dora);
    if (options.dropout > 0) {
      linear.drop_adapter_input(options.dropout, kFirstDropout + static_cast<int>(i));
    }
  }
  if (const Param* table = adapted_embedding(found, rules)) {
    adapt_embedding(model, *table, options, rules);
  }
  if (const auto head = adapted_head(found, rules)) {
    adapt_head(model, head_module(found), *head, options);
  }
  adapt_experts(model, options, rules);
  train_tokens(model, found.params, options, rules);
  train_saved_modules(model, found.params, options, rules);
  train_biases(found.params, options, rules);
}

std::vector<std::string> lora_modules(Model& model) {
  const std::set<std::string> names = last_names(Linears(model));
  return {names.begin(), names.end()};
}

}  // namespace atl::nn
