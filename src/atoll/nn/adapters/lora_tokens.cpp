#include "atoll/nn/adapters/lora_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/nn/adapters/trained_tokens.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::nn {

namespace {

constexpr const char* kSetting = "lora.trainable_token_indices";
constexpr const char* kRows = ".token_adapter.trainable_tokens_delta";

bool is_table(const Param& param) {
  return param.is_embedding && !param.is_position && !is_head_weight(param.files.front().name);
}

[[noreturn]] void refuse(std::string_view why, std::string_view remedy) {
  throw user_error("{}: rows of tokens are not trained {}; {}", kSetting, why, remedy);
}

void refuse_others(const Model& model, const Param& table, const LoraOptions& options,
                   const LoraRules& rules) {
  const std::string module = module_of(table.files.front());
  if (table.cut) refuse("while ranks share the embedding (parallel.tp)", "use dp.zero");
  if (model.options.device != DeviceKind::kCpu) refuse("on a GPU", "use --device=cpu");
  const std::string head = kHeadModule;
  const bool is_tied = model.config.tie_embeddings;
  for (const std::string& name : {module, head}) {
    if (name == head && !is_tied) continue;
    if (rules.saves(name) || rules.of_module(name, /*in_all_linear=*/false)) {
      refuse(fmt::format("beside {}, which lora.modules_to_save or lora.targets names", name),
             "leave one of the two out");
    }
  }
  if (is_tied && model.head == nullptr) {
    refuse("where the head shares them and its logits are capped or scaled",
           "train the embedding whole (lora.modules_to_save)");
  }
  if (options.tokens.size() > 1 && !is_tied) {
    refuse("for the head by itself", "name those of the embedding alone");
  }
}

// The tokens of the embedding. Those of a tied head, where they are named too, are the same.
const std::vector<std::int64_t>& tokens_of(const Model& model, const LoraOptions& options,
                                           const std::string& module) {
  const std::vector<std::int64_t>* found = nullptr;
  for (const auto& [name, tokens] : options.tokens) {
    if (name.empty() || module.ends_with(name)) found = &tokens;
  }
  for (const auto& [name, tokens] : options.tokens) {
    if (found == nullptr || tokens != *found) {
      refuse(fmt::format("of {} by itself", name), "name those of the embedding alone");
    }
  }
  const std::int64_t vocab = model.config.vocab_size;
  for (const std::int64_t token : *found) {
    if (token >= 0 && token < vocab) continue;
    throw user_error("{} has {}, and the model has tokens from 0 to {}", kSetting, token,
                     vocab - 1);
  }
  return *found;
}

}  // namespace

void train_tokens(Model& model, const std::vector<Param*>& params, const LoraOptions& options,
                  const LoraRules& rules) {
  if (options.tokens.empty()) return;
  const auto table =
      std::find_if(params.begin(), params.end(), [](const Param* p) { return is_table(*p); });
  const auto positions =
      std::find_if(params.begin(), params.end(), [](const Param* p) { return p->is_position; });
  ATOLL_CHECK(table != params.end(), "a model without an embedding");
  refuse_others(model, **table, options, rules);
  const std::string module = module_of((*table)->files.front());
  TrainedRows rows;
  rows.tokens = tokens_of(model, options, module);
  const auto count = std::ssize(rows.tokens);
  rows.slots.assign(static_cast<std::size_t>(model.config.vocab_size), -1);
  for (std::int32_t slot = 0; slot < count; ++slot) {
    rows.slots[static_cast<std::size_t>(rows.tokens[static_cast<std::size_t>(slot)])] = slot;
  }
  rows.rows.name = (*table)->name + " trainable_tokens_delta";
  rows.rows.spec = {(*table)->spec.dtype, {count, (*table)->spec.shape.dim(1)}};
  rows.rows.init = Init::zero();  // load_parameters() then has the table's rows
  rows.rows.decay = true;
  rows.rows.files = {{kPeftPrefix + module + kRows, 0, count, false}};
  auto embedding = std::make_unique<TrainedTokens>(
      std::move(model.stages.front()), std::move(rows), model.config.embedding_scale,
      positions == params.end() ? nullptr : *positions);
  if (model.config.tie_embeddings) {
    model.stages.back() =
        std::make_unique<TrainedTokensHead>(std::move(model.stages.back()), &embedding->rows());
  }
  model.stages.front() = std::move(embedding);
}

bool is_trained_rows(const Param& param) {
  return !param.files.empty() && param.files.front().name.ends_with(kRows);
}

std::vector<std::int64_t> tokens_trained_in(const Model& model) {
  struct Finder final : TrainedRowsVisitor {
    void param(Param& /*param*/) override {}
    void trained_rows(const TrainedRows& rows) override { tokens = rows.tokens; }
    std::vector<std::int64_t> tokens;
  } finder;
  model.visit(finder);
  return finder.tokens;
}

}  // namespace atl::nn
