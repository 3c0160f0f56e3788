#include "atoll/hub/dataset.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/log.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

// The address that a text is; nothing for a path.
std::optional<RepoName> address_of(const std::string& text) {
  const bool is_address = text.starts_with("hf://") || text.starts_with("https://huggingface.co/");
  if (!is_address) return std::nullopt;
  const auto name = parse_name(text, RepoKind::kModel);
  if (name && name->kind == RepoKind::kDataset) return name;
  throw user_error(
      "{} is no data set of the hub, which is written hf://datasets/ORG/NAME, then "
      "@REVISION and /PATH where they are meant",
      text);
}

std::vector<fs::path> got(const RepoName& name, const IsRead& is_read) {
  const HubSettings settings = read_settings();
  const Snapshot snapshot =
      get_snapshot(settings, name, [&](const std::vector<RepoFile>& files, const ReadRepoFile&) {
        return choose_data_files(name, files, is_read);
      });
  log::info("{} is {}", name.text(), snapshot.directory.string());
  std::vector<fs::path> paths;
  for (const RepoFile& file : snapshot.files) paths.push_back(snapshot.directory / file.path);
  return paths;
}

}  // namespace

std::vector<RepoFile> choose_data_files(const RepoName& name, const std::vector<RepoFile>& files,
                                        const IsRead& is_read) {
  std::vector<RepoFile> chosen;
  std::set<std::string> others;
  const std::string prefix = name.path.empty() ? "" : name.path + "/";
  for (const RepoFile& file : files) {
    if (file.path == name.path) return {file};
    if (!file.path.starts_with(prefix)) continue;
    if (is_read(fs::path(file.path))) {
      chosen.push_back(file);
    } else if (const std::string ending = fs::path(file.path).extension(); !ending.empty()) {
      others.insert(ending);
    }
  }
  if (!chosen.empty()) return chosen;
  if (others.empty()) throw user_error("{} has no files", name.text());
  throw user_error("of {} atoll reads no file: there are {}; name one file, as {}/PATH",
                   name.text(), fmt::join(others, ", "), name.text());
}

bool names_data_set(const std::string& text) {
  if (!text.starts_with("hf://datasets/")) return false;
  const auto name = parse_name(text, RepoKind::kDataset);
  return name && name->kind == RepoKind::kDataset;
}

std::vector<fs::path> local_texts(const std::vector<fs::path>& texts, const IsRead& is_read) {
  // For the whole process, whose parts ask by themselves: all of them see one commit.
  static std::mutex mutex;
  static std::map<std::string, std::vector<fs::path>> known;
  std::vector<fs::path> result;
  for (const fs::path& text : texts) {
    const auto name = address_of(text.string());
    if (!name) {
      result.push_back(text);
      continue;
    }
    const std::lock_guard lock(mutex);
    auto at = known.find(text.string());
    if (at == known.end()) at = known.emplace(text.string(), got(*name, is_read)).first;
    result.insert(result.end(), at->second.begin(), at->second.end());
  }
  return result;
}

}  // namespace atl::hub
