#include "atoll/model_dir/adapter_merge.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/ckpt/model_files.h"
#include "atoll/model_dir/new_rows.h"
#include "atoll/nn/adapters/expert_adapter.h"
#include "atoll/nn/models/family.h"

namespace atl::model_dir {

namespace fs = std::filesystem;
using nn::ModuleKind;

namespace {

constexpr const char* kTokens = ".token_adapter.trainable_tokens_delta";

AdapterConfig read_config(const fs::path& directory) {
  const fs::path path = directory / kAdapterConfigFile;
  return parse_adapter_config(read_file(path), path.string());
}

std::string token_embedding(const std::vector<nn::ModelTensor>& tensors) {
  for (const nn::ModelTensor& tensor : tensors) {
    if (tensor.kind == ModuleKind::kEmbedding) return tensor.module;
  }
  return "";
}

// As PEFT has it: the tokens of the head, where they are not those of the embedding, are its own.
bool has_tokens_of_its_own(const AdapterConfig& config, const std::string& embedding) {
  const std::vector<std::int64_t>* of_embedding = nullptr;
  const std::vector<std::int64_t>* of_head = nullptr;
  for (const auto& [name, indices] : config.lora.tokens) {
    if (name.empty() || embedding.ends_with(name)) of_embedding = &indices;
    if (!name.empty() && std::string_view(nn::kHeadModule).ends_with(name)) of_head = &indices;
  }
  return of_head != nullptr && (of_embedding == nullptr || *of_embedding != *of_head);
}

// Whether a tied embedding and head become two.
bool unties(const AdapterConfig& config, const std::string& embedding) {
  if (config.keeps_tied) return false;
  const nn::LoraRules rules(config.lora, kAdapterConfigFile);
  for (const std::string& module : {embedding, std::string(nn::kHeadModule)}) {
    if (rules.of_module(module, /*in_all_linear=*/false) || rules.saves(module)) return true;
  }
  return has_tokens_of_its_own(config, embedding);
}

}  // namespace

nn::ModelConfig adapted_config(nn::ModelConfig base, const fs::path& directory) {
  const AdapterConfig config = read_config(directory);
  const AdapterTensors tensors(directory);
  const std::string embedding =
      token_embedding(nn::model_tensors(*nn::build_model(base, {.max_positions = 1})));
  if (base.tie_embeddings && unties(config, embedding)) base = with_own_head(std::move(base));
  const std::string table = embedding + ".weight";
  if (tensors.contains(table)) {
    const Shape shape = tensors.file().spec(tensors.name_of(table)).shape;
    if (shape.rank() == 2 && shape.dim(0) > 0) {
      base = with_vocab_size(std::move(base), shape.dim(0));
    }
  }
  return base;
}

AdapterMerge::AdapterMerge(const fs::path& directory, nn::Model& model)
    : config_(read_config(directory)), tensors_(directory) {
  const nn::LoraRules rules(config_.lora, (directory / kAdapterConfigFile).string());
  const std::vector<nn::ModelTensor> all = nn::model_tensors(model);
  embedding_ = token_embedding(all);
  std::set<nn::Param*> stacked;
  std::set<const nn::Param*> seen;
  for (const nn::ModelTensor& tensor : all) {
    if (seen.insert(tensor.param).second) params_.push_back(tensor.param);
    plan(tensor, rules);
    if (tensor.kind == ModuleKind::kExpert) stacked.insert(tensor.param);
  }
  for (nn::Param* param : stacked) plan_stacked_experts(*param, rules);
  if (model.config.tie_embeddings) check_tied_head();
  tensors_.refuse_unused();
}

void AdapterMerge::plan(const nn::ModelTensor& tensor, const nn::LoraRules& rules) {
  if (tensors_.contains(tensor.file.name)) {
    nn::FileTensor file = tensor.file;
    file.name = tensors_.use(tensor.file.name);
    changes_[tensor.param].replaced.push_back(std::move(file));
  }
  const bool is_product = tensor.kind == ModuleKind::kLinear ||
                          tensor.kind == ModuleKind::kRouter || tensor.kind == ModuleKind::kExpert;
  const bool is_table = tensor.kind == ModuleKind::kEmbedding || tensor.kind == ModuleKind::kHead;
  if (!is_product && !is_table) return;
  std::optional<nn::LoraShape> shape = rules.of_module(tensor.module, is_product);
  if (!shape && !tensor.is_bias) shape = rules.of_parameter(tensor.file.name);
  if (tensor.is_bias) {
    if (!shape || !config_.lora_bias || !is_product) return;
    const std::string name = tensors_.use(tensor.module + ".lora_B.bias");
    changes_[tensor.param].biases.push_back({tensor.file, shape->scale, name});
    return;
  }
  if (is_table) plan_tokens(tensor);
  if (shape) plan_low_rank(tensor, *shape);
}

void AdapterMerge::plan_low_rank(const nn::ModelTensor& tensor, const nn::LoraShape& shape) {
  LowRank change = {
      .rows = tensor.file, .shape = shape, .a_name = {}, .b_name = {}, .lengths_name = {}};
  change.is_embedding = tensor.kind == ModuleKind::kEmbedding;
  const std::string a =
      tensor.module + (change.is_embedding ? ".lora_embedding_A" : ".lora_A.weight");
  const std::string b =
      tensor.module + (change.is_embedding ? ".lora_embedding_B" : ".lora_B.weight");
  // transformers 4 has modules for experts and routers, transformers 5 has not: the same targets
  // adapt them in one and not in the other.
  const bool may_lack = tensor.kind == ModuleKind::kRouter || tensor.kind == ModuleKind::kExpert;
  if (may_lack && !tensors_.contains(a) && !tensors_.contains(b)) return;
  change.a_name = tensors_.use(a);
  change.b_name = tensors_.use(b);
  if (config_.lora.use_dora) {
    change.lengths_name = tensors_.use(tensor.module + ".lora_magnitude_vector");
  }
  changes_[tensor.param].low_rank.push_back(std::move(change));
}

void AdapterMerge::plan_tokens(const nn::ModelTensor& tensor) {
  for (const auto& [name, indices] : config_.lora.tokens) {
    const bool is_meant =
        name.empty() ? tensor.module == embedding_ : tensor.module.ends_with(name);
    if (!is_meant) continue;
    const std::int64_t vocab = tensor.param->spec.shape.dim(0);
    for (const std::int64_t index : indices) {
      if (index < vocab) continue;
      throw user_error("{}: \"trainable_token_indices\" has {}, and {} has {} rows",
                       kAdapterConfigFile, index, tensor.module, vocab);
    }
    changes_[tensor.param].tokens.push_back({tensors_.use(tensor.module + kTokens), indices});
    return;
  }
}

// transformers 5 keeps the experts of a block in two parameters of one module. Where both are
// adapted, PEFT wraps the module twice, the first parameter inside.
void AdapterMerge::plan_stacked_experts(nn::Param& param, const nn::LoraRules& rules) {
  if (param.spec.shape.rank() == 1) return;  // biases, which have no factors
  const bool is_first = param.name.ends_with(".gate_up.weight");
  const std::string module =
      param.name.substr(0, param.name.rfind(".mlp.experts.")) + ".mlp.experts";
  const auto first = rules.of_parameter(module + ".gate_up_proj");
  const auto second = rules.of_parameter(module + ".down_proj");
  const auto& shape = is_first ? first : second;
  if (!shape) return;
  const std::string at = module + (is_first && second ? ".base_layer" : "");
  const auto count = static_cast<std::int64_t>(param.files.size()) / (is_first ? 2 : 1);
  const std::int64_t rows = param.spec.shape.dim(0) / count;
  for (std::int64_t e = 0; e < count; ++e) {
    changes_[&param].low_rank.push_back({.rows = {"", e * rows, rows, false},
                                         .shape = *shape,
                                         .a_name = tensors_.use(at + ".lora_A.weight"),
                                         .b_name = tensors_.use(at + ".lora_B.weight"),
                                         .lengths_name = {},
                                         .expert = e,
                                         .num_experts = count,
                                         .order = nn::rows_in_stack(param, count)});
  }
}

// An adapter that keeps a head tied has the head's tensors once more, in the head's form.
void AdapterMerge::check_tied_head() {
  const std::string head = nn::kHeadModule;
  const auto shape_of = [&](const std::string& plain) {
    return tensors_.file().spec(tensors_.name_of(plain)).shape;
  };
  struct Pair {
    const char* of_head;
    const char* of_embedding;
    bool is_transposed;
  };
  for (const Pair& pair :
       {Pair{".weight", ".weight", false}, Pair{".lora_A.weight", ".lora_embedding_B", true},
        Pair{".lora_B.weight", ".lora_embedding_A", true}, Pair{kTokens, kTokens, false}}) {
    const std::string ours = head + pair.of_head;
    const std::string theirs = embedding_ + pair.of_embedding;
    if (!tensors_.contains(ours) || !tensors_.contains(theirs)) continue;
    const Shape shape = shape_of(theirs);
    const std::vector<float> a = tensors_.read(tensors_.use(ours), shape_of(ours));
    std::vector<float> b = tensors_.read(tensors_.use(theirs), shape);
    if (pair.is_transposed && shape.rank() == 2) b = transposed(b, shape.dim(0), shape.dim(1));
    if (a == b) continue;
    throw user_error(
        "{}: {} differs from {}, and the base model ties the head to the embedding; set "
        "\"tie_word_embeddings\": false in its config.json, or \"ensure_weight_tying\": false in "
        "{} if the adapter was trained so",
        tensors_.file().path().string(), ours, theirs, kAdapterConfigFile);
  }
}

LowRankChange AdapterMerge::read(const LowRank& low_rank, std::int64_t in,
                                 StackedFactors& stacked) const {
  const std::int64_t rank = low_rank.shape.rank;
  const std::int64_t rows = low_rank.rows.rows;
  LowRankChange change = {.rank = rank,
                          .scale = low_rank.shape.scale,
                          .left = {},
                          .right = {},
                          .row_lengths = {},
                          .column_lengths = {}};
  std::vector<float>& lengths = low_rank.is_embedding ? change.column_lengths : change.row_lengths;
  if (!low_rank.lengths_name.empty()) {
    lengths.resize(static_cast<std::size_t>(low_rank.is_embedding ? in : rows));
    tensors_.file().read_f32(low_rank.lengths_name, std::span<float>(lengths));
  }
  if (low_rank.is_embedding) {
    change.left = transposed(tensors_.read(low_rank.a_name, {rank, rows}), rank, rows);
    change.right = transposed(tensors_.read(low_rank.b_name, {in, rank}), in, rank);
    return change;
  }
  const std::int64_t count = low_rank.num_experts;
  if (low_rank.order.empty()) {
    change.right = tensors_.read(low_rank.a_name, {rank, in});
    change.left = tensors_.read(low_rank.b_name, {rows, rank});
    return change;
  }
  if (stacked.a_name != low_rank.a_name) {
    stacked = {low_rank.a_name, tensors_.read(low_rank.a_name, {count * rank, in}),
               tensors_.read(low_rank.b_name, {rows, rank * count})};
  }
  // A: (experts, rank, in)  B: (rows, rank, experts)
  const auto begin = stacked.a.begin() + low_rank.expert * rank * in;
  change.right.assign(begin, begin + rank * in);
  change.left.resize(static_cast<std::size_t>(rows * rank));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t in_file = low_rank.order[static_cast<std::size_t>(row)];
    for (std::int64_t j = 0; j < rank; ++j) {
      const std::int64_t from = (in_file * rank + j) * count + low_rank.expert;
      change.left[static_cast<std::size_t>(row * rank + j)] =
          stacked.b[static_cast<std::size_t>(from)];
    }
  }
  return change;
}

namespace {

// The part of factors of some rows that one of these rows' tensors has.
TensorFactors factors_of(const LowRankChange& change, const std::string& tensor, std::int64_t begin,
                         std::int64_t rows) {
  const auto from = change.left.begin() + begin * change.rank;
  return {.tensor = tensor,
          .rank = change.rank,
          .scale = change.scale,
          .left = std::vector<float>(from, from + rows * change.rank),
          .right = change.right};
}

}  // namespace

std::vector<TensorFactors> AdapterMerge::factors() const {
  std::vector<TensorFactors> all;
  for (const nn::Param* param : params_) {
    const auto at = changes_.find(param);
    if (at == changes_.end()) continue;
    StackedFactors stacked;
    for (const LowRank& low_rank : at->second.low_rank) {
      const LowRankChange change = read(low_rank, param->spec.shape.dim(1), stacked);
      const nn::FileTensor& rows = low_rank.rows;
      if (!rows.name.empty()) {
        all.push_back(factors_of(change, rows.name, 0, rows.rows));
        continue;
      }
      // The rows of one expert, which may be those of two matrices.
      for (const nn::FileTensor& file : param->files) {
        const std::int64_t begin = file.row_begin - rows.row_begin;
        if (begin < 0 || begin >= rows.rows) continue;
        all.push_back(factors_of(change, file.name, begin, file.rows));
      }
    }
  }
  return all;
}

std::vector<std::string> AdapterMerge::other_parts() const {
  std::vector<std::string> parts;
  if (config_.lora.use_dora) parts.emplace_back("use_dora");
  for (const nn::Param* param : params_) {
    const auto at = changes_.find(param);
    if (at == changes_.end()) continue;
    for (const nn::FileTensor& file : at->second.replaced) parts.push_back(file.name);
    for (const TokenRows& tokens : at->second.tokens) parts.push_back(tokens.name);
    for (const Bias& bias : at->second.biases) parts.push_back(bias.name);
  }
  return parts;
}

bool AdapterMerge::replaces(const nn::Param& param) const {
  const auto at = changes_.find(&param);
  return at != changes_.end() && at->second.replaced.size() == param.files.size();
}

void AdapterMerge::add_to(const nn::Param& param, const Tensor& value) const {
  const auto at = changes_.find(&param);
  if (at == changes_.end()) return;
  const Changes& changes = at->second;
  nn::Param whole;
  whole.files = changes.replaced;
  const ckpt::ParamTensor replaced = {&whole, value};
  ckpt::read_params(tensors_.file(), std::span(&replaced, 1));
  const auto rows_of = [&](const nn::FileTensor& rows) {
    return value.rows(rows.row_begin, rows.row_begin + rows.rows);
  };
  for (const TokenRows& tokens : changes.tokens) {
    const Shape shape = {static_cast<std::int64_t>(tokens.indices.size()), value.dim(1)};
    replace_rows(tokens.indices, tensors_.read(tokens.name, shape), value);
  }
  StackedFactors stacked;
  for (const LowRank& low_rank : changes.low_rank) {
    add_low_rank(read(low_rank, value.dim(1), stacked), rows_of(low_rank.rows));
  }
  for (const Bias& bias : changes.biases) {
    add_scaled(bias.scale, tensors_.read(bias.name, {bias.rows.rows}), rows_of(bias.rows));
  }
}

}  // namespace atl::model_dir
