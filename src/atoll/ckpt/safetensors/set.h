#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/ckpt/safetensors/safetensors.h"

namespace atl::ckpt {

/// Some safetensors files whose tensors belong together, as several ranks wrote them.
class SafetensorsSet {
 public:
  /// One file at least. Throws as SafetensorsFile, and Error(kDamaged) when two have a tensor of
  /// the same name.
  explicit SafetensorsSet(std::span<const std::filesystem::path> paths);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  bool contains(std::string_view tensor) const { return index_.contains(tensor); }
  /// The file that holds a tensor; throws Error(kUser) naming the files when none does.
  const SafetensorsFile& file_of(std::string_view tensor) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> index_;  // tensor -> number of its file
};

}  // namespace atl::ckpt
