#include "atoll/hub/model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/json.h"
#include "atoll/base/log.h"
#include "atoll/hub/patterns.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// Files beside the weights that some reader of a model looks for.
constexpr std::array<const char*, 13> kBeside = {"config.json",
                                                 "adapter_config.json",
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer.model",
                                                 "tokenizer_config.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "preprocessor_config.json"};

// A list of files below a directory of the repository, looked up by what they are called there.
class Below {
 public:
  Below(const std::vector<RepoFile>& files, const std::string& directory) {
    const std::string prefix = directory.empty() ? "" : directory + "/";
    for (const RepoFile& file : files) {
      if (file.path.starts_with(prefix)) files_[file.path.substr(prefix.size())] = file;
    }
  }
  const RepoFile* find(const std::string& name) const {
    const auto at = files_.find(name);
    return at == files_.end() ? nullptr : &at->second;
  }
  const std::map<std::string, RepoFile>& all() const { return files_; }

 private:
  std::map<std::string, RepoFile> files_;
};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// "model-Q4_K_M" of "Q4/model-Q4_K_M-00001-of-00003.gguf".
std::string stem_of(const std::string& path) {
  static const std::regex kPart("-[0-9]{5}-of-[0-9]{5}$");
  return std::regex_replace(fs::path(path).stem().string(), kPart, "");
}

// The variant that a GGUF file is of, by what llama.cpp's tools write into names; empty: it does
// not say.
std::string variant_of(const std::string& path) {
  static const std::regex kVariant(
      "(?:^|[-._])((?:UD-)?(?:I?Q[0-9]+(?:_[A-Z0-9]+)*|F16|F32|BF16|MXFP4(?:_MOE)?|TQ[12]_0))$");
  std::smatch found;
  const std::string stem = upper(stem_of(path));
  if (std::regex_search(stem, found, kVariant)) return found[1];
  const std::string parent = upper(fs::path(path).parent_path().filename().string());
  if (std::regex_search(parent, found, kVariant)) return found[1];
  return "";
}

bool is_of_variant(const std::string& path, const std::string& variant) {
  if (!path.ends_with(".gguf")) return false;
  const std::string wanted = upper(variant);
  return variant_of(path) == wanted || upper(fs::path(path).parent_path().filename()) == wanted;
}

std::vector<RepoFile> choose_gguf(const RepoName& name, const std::vector<RepoFile>& files) {
  std::vector<RepoFile> chosen;
  for (const RepoFile& file : files) {
    // What draws pictures into a model's tokens is a file of its own.
    if (upper(fs::path(file.path).filename()).starts_with("MMPROJ")) continue;
    if (is_of_variant(file.path, name.variant)) chosen.push_back(file);
  }
  const std::vector<std::string> others = gguf_variants(files);
  if (chosen.empty()) {
    throw user_error(
        "{} has no GGUF file of {}; {}", name.id, name.variant,
        others.empty() ? "it has none at all" : fmt::format("it has {}", fmt::join(others, ", ")));
  }
  if (stem_of(chosen.front().path) != stem_of(chosen.back().path)) {
    throw user_error("{} has several models of {}: {} and {}; name the file, as hf://{}/{}",
                     name.id, name.variant, chosen.front().path, chosen.back().path, name.id,
                     chosen.front().path);
  }
  return chosen;
}

[[noreturn]] void refuse_without_weights(const RepoName& name, const Below& below) {
  std::vector<RepoFile> all;
  bool has_pytorch = false;
  for (const auto& [path, file] : below.all()) {
    all.push_back(file);
    has_pytorch = has_pytorch || path.ends_with(".bin") || path.ends_with(".pt");
  }
  if (const auto variants = gguf_variants(all); !variants.empty()) {
    throw user_error(
        "{} holds GGUF files alone; turn one into a directory: atoll import {}:{} --out {}",
        name.text(), name.id, variants.front(), fs::path(name.id).filename().string());
  }
  throw user_error(
      "{} has {}; atoll reads model.safetensors, or model.safetensors.index.json with its parts{}",
      name.text(), has_pytorch ? "its weights in PyTorch's files alone" : "no weights",
      has_pytorch ? ": look for a revision that has them (refs/pr/N), or save the model as "
                    "safetensors with transformers (save_pretrained)"
                  : "");
}

// The files that an index names.
std::vector<RepoFile> shards_of(const RepoName& name, const Below& below, const RepoFile& index,
                                const ReadRepoFile& read) {
  const std::string origin = name.id + "/" + index.path;
  const nlohmann::json json = parse_json(read(index), origin);
  std::vector<RepoFile> shards;
  try {
    std::set<std::string> names;
    for (const auto& entry : json.at("weight_map")) names.insert(entry.get<std::string>());
    for (const std::string& shard : names) {
      const RepoFile* const file = below.find(shard);
      if (file == nullptr) {
        throw damaged_error("{} names {}, and there is no such file", origin, shard);
      }
      shards.push_back(*file);
    }
  } catch (const nlohmann::json::exception& error) {
    throw damaged_error("{}: {}", origin, json_reason(error));
  }
  return shards;
}

std::vector<RepoFile> choose_directory(const RepoName& name, const Below& below,
                                       const ReadRepoFile& read) {
  const bool is_model = below.find("config.json") != nullptr;
  const bool is_adapter = below.find("adapter_config.json") != nullptr;
  if (!is_model && !is_adapter) {
    if (std::any_of(below.all().begin(), below.all().end(),
                    [](const auto& entry) { return entry.first.ends_with(".gguf"); })) {
      refuse_without_weights(name, below);
    }
    throw user_error(
        "{} is no model that atoll reads: it has neither config.json nor "
        "adapter_config.json",
        name.text());
  }
  std::vector<RepoFile> chosen;
  for (const char* beside : kBeside) {
    if (const RepoFile* file = below.find(beside)) chosen.push_back(*file);
  }
  for (const auto& [path, file] : below.all()) {
    if (fits_pattern(path, "additional_chat_templates/*.jinja")) chosen.push_back(file);
  }
  const RepoFile* const weights = below.find(is_adapter ? kAdapterWeights : kWeights);
  const RepoFile* const index = is_adapter ? nullptr : below.find(kIndex);
  if (weights != nullptr) {
    chosen.push_back(*weights);
  } else if (index != nullptr) {
    chosen.push_back(*index);
    for (RepoFile& shard : shards_of(name, below, *index, read)) chosen.push_back(std::move(shard));
  } else {
    refuse_without_weights(name, below);
  }
  return chosen;
}

std::vector<RepoFile> choose_tokenizer(const RepoName& name, const std::vector<RepoFile>& files) {
  const Below below(files, name.path);
  if (below.find("tokenizer.json") == nullptr && below.find("tokenizer.model") == nullptr) {
    throw user_error("{} has no tokenizer: neither tokenizer.json nor tokenizer.model",
                     name.text());
  }
  std::vector<RepoFile> chosen;
  for (const char* beside : kBeside) {
    if (const RepoFile* file = below.find(beside)) chosen.push_back(*file);
  }
  return chosen;
}

fs::path got(const RepoName& name, bool is_tokenizer) {
  const HubSettings settings = read_settings();
  std::vector<std::string> wanted;
  if (name.variant.empty() && name.path.empty()) wanted.assign(kBeside.begin(), kBeside.end());
  const Snapshot snapshot = get_snapshot(
      settings, name,
      [&](const std::vector<RepoFile>& files, const ReadRepoFile& read) {
        return is_tokenizer ? choose_tokenizer(name, files) : choose_model_files(name, files, read);
      },
      wanted);
  log::info("{} is {}", name.text(), snapshot.directory.string());
  const bool is_file = !name.variant.empty() || name.path.ends_with(".gguf");
  return snapshot.below(is_file ? snapshot.files.front().path : name.path);
}

std::optional<fs::path> got_once(const fs::path& path, bool is_tokenizer) {
  const auto name = name_unless_path(path, RepoKind::kModel);
  if (!name) return std::nullopt;
  if (name->kind != RepoKind::kModel) {
    throw user_error("{} is a data set, and a model is wanted", path.string());
  }
  // For the whole process: its ranks may be threads, and each part of a run asks by itself.
  static std::mutex mutex;
  static std::map<std::pair<std::string, bool>, fs::path> known;
  const std::lock_guard lock(mutex);
  const std::pair key(path.string(), is_tokenizer);
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  try {
    return known[key] = got(*name, is_tokenizer);
  } catch (const Error& error) {
    if (path.string().find("://") != std::string::npos) throw;
    // It may have been meant as a path.
    throw make_error(error.kind(), "there is no directory {} here, and from the hub: {}",
                     path.string(), error.what());
  }
}

}  // namespace

std::vector<std::string> gguf_variants(const std::vector<RepoFile>& files) {
  std::set<std::string> found;
  for (const RepoFile& file : files) {
    if (!file.path.ends_with(".gguf")) continue;
    if (std::string variant = variant_of(file.path); !variant.empty()) {
      found.insert(std::move(variant));
    }
  }
  return {found.begin(), found.end()};
}

std::vector<RepoFile> choose_model_files(const RepoName& name, const std::vector<RepoFile>& files,
                                         const ReadRepoFile& read) {
  if (!name.variant.empty()) return choose_gguf(name, files);
  for (const RepoFile& file : files) {
    if (file.path == name.path) return {file};
  }
  const Below below(files, name.path);
  if (!name.path.empty() && below.all().empty()) {
    throw user_error("{} has nothing at {}", name.id, name.path);
  }
  return choose_directory(name, below, read);
}

std::optional<fs::path> model_of_hub(const fs::path& path) {
  return got_once(path, /*is_tokenizer=*/false);
}

fs::path local_model(const fs::path& path) {
  return model_of_hub(path).value_or(path);
}

fs::path local_tokenizer(const fs::path& path) {
  return got_once(path, /*is_tokenizer=*/true).value_or(path);
}

}  // namespace atl::hub
