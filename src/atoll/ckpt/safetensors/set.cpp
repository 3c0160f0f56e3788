#include "atoll/ckpt/safetensors/set.h"

#include "atoll/base/check.h"

namespace atl::ckpt {

SafetensorsSet::SafetensorsSet(std::span<const std::filesystem::path> paths) {
  ATOLL_CHECK(!paths.empty(), "no files");
  for (const std::filesystem::path& path : paths) {
    files_.emplace_back(path);
    for (const SafetensorsEntry& entry : files_.back().entries()) {
      const auto [known, is_new] = index_.emplace(entry.name, files_.size() - 1);
      if (is_new) continue;
      throw damaged_error("{} and {} both have a tensor \"{}\"; they do not belong together",
                          files_[known->second].path().string(), path.string(), entry.name);
    }
  }
}

const SafetensorsFile& SafetensorsSet::file_of(std::string_view tensor) const {
  const auto found = index_.find(tensor);
  if (found != index_.end()) return files_[found->second];
  throw user_error("{}{} has no tensor \"{}\" among its {}; is it of another model?",
                   files_.front().path().string(),
                   files_.size() == 1 ? "" : fmt::format(" (or {} others)", files_.size() - 1),
                   tensor, index_.size());
}

}  // namespace atl::ckpt
