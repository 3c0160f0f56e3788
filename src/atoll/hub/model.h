#pragma once

// Which files of a repository a model needs, and where a model of the hub is on this machine.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/hub/snapshot.h"

namespace atl::hub {

/// The files that atoll reads of a model or an adapter: config.json, weights as safetensors (those
/// that an index names, where there is one), tokenizer, chat templates, generation settings. With a
/// variant ("Q4_K_M") the GGUF files of that one alone. Of name.path, the file or what lies below.
/// Throws Error(kUser) naming what is missing, and for weights in PyTorch's files alone.
std::vector<RepoFile> choose_model_files(const RepoName& name, const std::vector<RepoFile>& files,
                                         const ReadRepoFile& read);

/// The variants of GGUF files, such as "Q4_K_M", each once and in order.
std::vector<std::string> gguf_variants(const std::vector<RepoFile>& files);

/// Where a model is that a person names by `path`: got from the hub where nothing of that name is
/// here and the name can be one of the hub's (name_unless_path); a directory, or a GGUF file where
/// a variant was named. Nothing for a path. One process gets a name once, so that it sees one
/// commit however often it asks. Throws as get_snapshot and choose_model_files.
std::optional<std::filesystem::path> model_of_hub(const std::filesystem::path& path);

/// The same, with `path` itself where the hub is not meant.
std::filesystem::path local_model(const std::filesystem::path& path);

/// As local_model(), for whoever needs the tokenizer and chat template of a model alone: weights
/// are not got. Throws as get_snapshot, and Error(kUser) for a model without a tokenizer.
std::filesystem::path local_tokenizer(const std::filesystem::path& path);

}  // namespace atl::hub
