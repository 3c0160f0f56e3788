#include "atoll/train/model/new_tokens.h"

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/model_dir/adapter.h"
#include "atoll/model_dir/model_source.h"
#include "atoll/model_dir/new_rows.h"
#include "atoll/nn/models/family.h"
#include "atoll/nn/models/model_tensors.h"

namespace atl::train {

namespace {

bool has_row_of_each_token(const nn::ModelTensor& tensor) {
  return tensor.param->is_embedding && !tensor.param->is_position;
}

}  // namespace

nn::ModelConfig with_new_tokens(const TrainConfig& config, std::int64_t vocab_size,
                                const model_dir::ModelPath& directory) {
  nn::ModelConfig model = model_dir::read_model_config(directory);
  if (config.data.special_tokens.empty() || vocab_size <= model.vocab_size) return model;
  if (model_dir::holds_adapter(directory)) {
    throw user_error(
        "data.special_tokens: the model needs {} for them, and {} is an adapter; merge it before "
        "(`atoll export --merge`)",
        counted(vocab_size - model.vocab_size, "new row"), directory.string());
  }
  return model_dir::with_vocab_size(std::move(model), vocab_size);
}

void check_trained_new_tokens(const TrainConfig& config, const nn::ModelConfig& model,
                              const nn::LoraOptions& lora) {
  if (config.data.special_tokens.empty()) return;
  const std::int64_t old =
      model_dir::read_model_config(model_dir::find_model(config.model.from, config.model.base))
          .vocab_size;
  if (model.vocab_size <= old) return;
  const nn::LoraRules rules(lora, "lora.targets");
  const auto built = nn::build_model(model, {.max_positions = 1});
  std::vector<std::string> names;
  bool are_all_trained = true;
  for (const nn::ModelTensor& tensor : nn::model_tensors(*built)) {
    if (!has_row_of_each_token(tensor)) continue;
    names.push_back(tensor.module.substr(tensor.module.rfind('.') + 1));
    are_all_trained = are_all_trained && rules.saves(tensor.module);
  }
  if (are_all_trained) return;
  throw user_error(
      "data.special_tokens: the model gets {} for them, which the adapter has to hold; train {} "
      "whole beside it: lora.modules_to_save={}",
      counted(model.vocab_size - old, "new row"), fmt::join(names, " and "), fmt::join(names, ","));
}

void refuse_packed_new_tokens(const model_dir::ModelPath& directory, nn::Model& model) {
  if (model_dir::read_model_config(directory).vocab_size >= model.config.vocab_size) return;
  for (const nn::ModelTensor& tensor : nn::model_tensors(model)) {
    if (!has_row_of_each_token(tensor) || !tensor.param->is_packed()) continue;
    throw user_error(
        "data.special_tokens: {} is to get new rows, and stays in the bits of its file; use "
        "model.held_as=wide",
        tensor.file.name);
  }
}

}  // namespace atl::train
