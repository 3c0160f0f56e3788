#pragma once

// Where a model comes from: a Hugging Face directory, a checkpoint, the newest checkpoint of a run,
// or a LoRA adapter, whose base model lies elsewhere.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/threads/thread_pool.h"
#include "atoll/model_dir/model_path.h"
#include "atoll/nn/models/family.h"
#include "atoll/parallel/store/param_store.h"
#include "atoll/text/tokenizer.h"

namespace atl::model_dir {

/// The model directory that a command's argument means: a Hugging Face directory (a checkpoint is
/// one), an adapter, or a run, of which the newest checkpoint that verifies is taken. Throws
/// Error(kUser) when it is none of them, Error(kDamaged) when a checkpoint does not verify.
/// `base`: of an adapter, the base model, a model directory or a run, in place of the one that the
/// adapter names; Error(kUser) for it beside a whole model. Empty: none.
ModelPath find_model(const std::filesystem::path& argument, const std::filesystem::path& base = {});

/// "; there is runs/kjv-demo in it": the models and runs that lie directly in a directory that is
/// none itself, for the end of a message. Empty when there are none.
std::string advice_for_parent(const std::filesystem::path& directory);

/// Where the weights of a model directory are: in itself, or in the base model that its
/// adapter_config.json names, or that a person named in its place. Throws Error(kUser) when that is
/// not there.
std::filesystem::path base_directory(const ModelPath& directory);

/// The shape of the model in a model directory. Throws Error(kUser) for a damaged config.json, and
/// Error(kDamaged) for that of a checkpoint.
nn::ModelConfig read_model_config(const ModelPath& directory);

/// Where the tokenizer of a model directory is: in itself, or for an adapter without one in its
/// base model. Throws as base_directory.
std::filesystem::path tokenizer_directory(const ModelPath& directory);

/// That tokenizer. Throws as read_model_config.
Tokenizer load_tokenizer(const ModelPath& directory);

/// The tokens that end what the model of a directory says, as transformers takes them: eos_token_id
/// of generation_config.json, else of config.json. Where neither has one of the model's tokens, the
/// tokenizer's end of text. Ascending. Throws Error(kUser) naming the file for what is no id.
std::vector<std::int32_t> stop_tokens(const ModelPath& directory, const Tokenizer& tokenizer);

/// Reads the parameters of a model directory, or this rank's part of them, merging an adapter into
/// its base model. Parameters of LoRA that `model` has itself stay as they are. Needs no other
/// rank. `threads` read several at once: new memory is cleared by whoever touches it first, which
/// takes longer than to read the file. Throws as ckpt::DirectoryParams and AdapterMerge.
void load_parameters(const ModelPath& directory, nn::Model& model, parallel::ParamStore& store,
                     ThreadPool& threads);

/// The same by way of fill(), for a store that keeps parameters in another form.
void load_whole_parameters(const ModelPath& directory, nn::Model& model,
                           parallel::ParamStore& store);

}  // namespace atl::model_dir
