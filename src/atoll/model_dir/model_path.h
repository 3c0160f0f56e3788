#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace atl::model_dir {

/// What commands say of --base.
inline constexpr const char* kBaseHelp =
    "of an adapter: its base model, a directory or a run, in place of the one it names";

/// A model directory; with an adapter, the base model that a person named in place of the one that
/// adapter_config.json names. A path is one without such a base, and one is a path where only the
/// directory matters.
class ModelPath {
 public:
  ModelPath() = default;
  ModelPath(std::filesystem::path directory, std::filesystem::path base = {})  // NOLINT: see above
      : directory_(std::move(directory)), base_(std::move(base)) {}

  operator const std::filesystem::path&() const { return directory_; }  // NOLINT: see above
  const std::filesystem::path& directory() const { return directory_; }
  std::string string() const { return directory_.string(); }
  bool empty() const { return directory_.empty(); }
  /// Empty: the one that the adapter names, if it is one.
  const std::filesystem::path& base() const { return base_; }

 private:
  std::filesystem::path directory_;
  std::filesystem::path base_;
};

}  // namespace atl::model_dir
