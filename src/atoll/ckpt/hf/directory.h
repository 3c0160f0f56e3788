#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/safetensors/safetensors.h"

namespace atl::ckpt {

/// The dtype of each tensor in a model's files.
using FileDtypes = std::map<std::string, Dtype, std::less<>>;

/// A file that a checkpoint carries: the dtypes of the files its model came from. See
/// HfDirectory::source_dtypes.
inline constexpr const char* kSourceDtypesFile = "source_dtypes.json";

/// Files beside config.json and the weights that belong to a model and travel with it unread: its
/// tokenizer in every form, chat template, generation settings.
std::span<const char* const> carried_file_names();

/// A model as Hugging Face's tools keep it: config.json, the weights in model.safetensors or in
/// shards listed by model.safetensors.index.json, and perhaps tokenizer.json and others. Opened
/// whole: afterwards every tensor it lists is there. To write one, write its files. Of a multimodal
/// model this is the language model alone, as if it had never had another part: its config.json
/// and the names of its tensors are those of nn/models/multimodal.h.
class HfDirectory {
 public:
  /// Throws Error(kUser) saying what a model directory needs when something is missing,
  /// Error(kDamaged) when an index and its shards disagree or a shard is damaged.
  explicit HfDirectory(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  /// The text of config.json; see is_language_part().
  const std::string& config_json() const { return config_json_; }
  /// Whether this is the language model within a multimodal model, so that the files say more.
  bool is_language_part() const { return is_language_part_; }
  /// Whether it has this file: "tokenizer.json", "generation_config.json", ...
  bool has_file(std::string_view name) const;
  /// The text of such a file; throws Error(kUser) when there is none.
  std::string read_text(std::string_view name) const;

  /// All tensors' names, sorted.
  std::vector<std::string> tensor_names() const;
  bool contains(std::string_view tensor) const { return index_.contains(tensor); }
  /// The file that holds a tensor; throws Error(kUser) when there is no such tensor.
  const SafetensorsFile& file_of(std::string_view tensor) const;
  /// Shape and dtype, as SafetensorsFile::spec.
  Spec spec(std::string_view tensor) const { return file_of(tensor).spec(tensor); }
  /// The files whose tensors these are, in the order the index first names them.
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The dtype of each float tensor in the files that the model first came from: as
  /// kSourceDtypesFile says, where a checkpoint carries one, else as these files have it. Throws
  /// Error(kDamaged) naming file and tensor when that file is none.
  FileDtypes source_dtypes() const;
  /// What kSourceDtypesFile says of this directory: the most frequent dtype as "*", then each
  /// tensor of another one.
  std::string source_dtypes_json() const { return dtypes_json(source_dtypes()); }
  /// The same of other dtypes.
  static std::string dtypes_json(const FileDtypes& dtypes);
  /// Copies as f32 whatever float the file keeps; see SafetensorsFile::read_f32.
  void read_f32(std::string_view tensor, Tensor out) const {
    file_of(tensor).read_f32(tensor, out);
  }
  /// The same, where only the number of elements must agree.
  void read_f32(std::string_view tensor, std::span<float> out) const {
    file_of(tensor).read_f32(tensor, out);
  }

 private:
  void open_single();
  void open_sharded();
  void take_language_part();

  std::filesystem::path path_;
  std::string config_json_;
  bool is_language_part_ = false;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> index_;  // tensor -> number of its file
};

}  // namespace atl::ckpt
