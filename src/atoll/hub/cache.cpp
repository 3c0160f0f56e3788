#include "atoll/hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/json.h"

namespace atl::hub {

namespace fs = std::filesystem;

namespace {

constexpr int kTreeFormat = 1;  // "format_version" of huggingface_hub

std::string folder_of(const RepoName& name) {
  std::string folder = name.kind == RepoKind::kModel ? "models--" : "datasets--";
  for (const char c : name.id) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot make", directory, error.value());
}

// What is good to have, and not worth a failure: a cache may be for reading alone.
template <typename Write>
void if_writable(Write&& write) {
  try {
    write();
  } catch (const Error&) {
    return;
  }
}

nlohmann::json json_of(const RepoFile& file) {
  nlohmann::json entry = {{"size", file.size}, {"blob_id", file.blob_id}};
  if (!file.sha256.empty()) {
    entry["lfs_sha256"] = file.sha256;
    entry["lfs_size"] = file.size;
  }
  if (!file.xet_hash.empty()) entry["xet_hash"] = file.xet_hash;
  return entry;
}

// As an entry of the hub's own list, so that one reader checks both.
nlohmann::json as_answered(const std::string& path, const nlohmann::json& entry) {
  nlohmann::json answered = {
      {"type", "file"}, {"path", path}, {"size", entry.at("size")}, {"oid", entry.at("blob_id")}};
  if (entry.contains("lfs_sha256") && !entry["lfs_sha256"].is_null()) {
    answered["lfs"] = {{"oid", entry["lfs_sha256"]}, {"size", entry.at("lfs_size")}};
  }
  if (entry.contains("xet_hash")) answered["xetHash"] = entry["xet_hash"];
  return answered;
}

// How a link at `from` says where `to` is: a cache may be moved as a whole.
fs::path relative_target(const fs::path& to, const fs::path& from) {
  return to.lexically_relative(from.parent_path());
}

bool means_no_links(int error_number) {
  return error_number == EPERM || error_number == ENOTSUP || error_number == EOPNOTSUPP ||
         error_number == ENOSYS || error_number == EINVAL;
}

}  // namespace

RepoCache::RepoCache(const HubSettings& settings, const RepoName& name)
    : cache_(settings.cache),
      folder_(folder_of(name)),
      root_(cache_ / folder_),
      has_symlinks_(settings.has_symlinks) {}

fs::path RepoCache::snapshot(const std::string& commit) const {
  return root_ / "snapshots" / commit;
}

fs::path RepoCache::blob(const RepoFile& file) const {
  return root_ / "blobs" / file.etag();
}

fs::path RepoCache::lock(const RepoFile& file) const {
  return cache_ / ".locks" / folder_ / (file.etag() + ".lock");
}

std::optional<std::string> RepoCache::read_ref(const std::string& revision) const {
  const fs::path path = root_ / "refs" / revision;
  if (!file_exists(path)) return std::nullopt;
  std::string commit = read_file(path);
  while (commit.ends_with('\n')) commit.pop_back();
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

void RepoCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  if_writable([&] {
    if (read_ref(revision) == commit) return;
    const fs::path path = root_ / "refs" / revision;
    make_directories(path.parent_path());
    write_file(path, commit);
  });
}

std::optional<std::vector<RepoFile>> RepoCache::read_tree(const std::string& commit) const {
  const fs::path path = root_ / "trees" / (commit + ".json");
  if (!file_exists(path)) return std::nullopt;
  try {
    const nlohmann::json tree = parse_json(read_file(path, kMaxListBytes), path.string());
    if (tree.at("format_version") != kTreeFormat) return std::nullopt;
    nlohmann::json entries = nlohmann::json::array();
    for (const auto& [name, entry] : tree.at("files").items()) {
      entries.push_back(as_answered(name, entry));
    }
    return parse_tree(entries.dump(), path.string());
  } catch (const Error&) {
    return std::nullopt;  // asked for again
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

void RepoCache::write_tree(const std::string& commit, const std::vector<RepoFile>& files) const {
  nlohmann::json entries = nlohmann::json::object();
  for (const RepoFile& file : files) entries[file.path] = json_of(file);
  const nlohmann::json tree = {{"format_version", kTreeFormat}, {"files", std::move(entries)}};
  if_writable([&] {
    make_directories(root_ / "trees");
    write_file(root_ / "trees" / (commit + ".json"), tree.dump(1));
  });
}

std::vector<RepoFile> RepoCache::files_there(const std::string& commit) const {
  const fs::path directory = snapshot(commit);
  std::vector<RepoFile> files;
  if (!directory_exists(directory)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    std::error_code broken;
    if (!fs::is_regular_file(entry.path(), broken)) continue;
    files.push_back({.path = entry.path().lexically_relative(directory).generic_string(),
                     .size = fs::file_size(entry.path())});
  }
  std::sort(files.begin(), files.end(),
            [](const RepoFile& a, const RepoFile& b) { return a.path < b.path; });
  return files;
}

bool RepoCache::has(const std::string& commit, const RepoFile& file) const {
  std::error_code error;
  const fs::path path = snapshot(commit) / file.path;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == file.size && !error;
}

void RepoCache::link(const std::string& commit, const RepoFile& file, bool is_new) const {
  const fs::path from = snapshot(commit) / file.path;
  const fs::path to = blob(file);
  make_directories(from.parent_path());
  for (int i = 0; has_symlinks_ && i < 2; ++i) {
    if (::symlink(relative_target(to, from).c_str(), from.c_str()) == 0) return;
    if (means_no_links(errno)) break;
    if (errno != EEXIST) throw io_error("cannot make the link", from, errno);
    // Another process was faster, or a link leads nowhere any more.
    if (has(commit, file)) return;
    ::unlink(from.c_str());
  }
  if (is_new) {
    if (::rename(to.c_str(), from.c_str()) == 0) return;
    throw io_error("cannot move a file to", from, errno);
  }
  std::error_code error;
  fs::copy_file(to, from, fs::copy_options::overwrite_existing, error);
  if (error) throw io_error("cannot copy a file to", from, error.value());
}

void RepoCache::write_absent(const std::string& commit, const std::string& path) const {
  if_writable([&] {
    const fs::path mark = root_ / ".no_exist" / commit / path;
    if (file_exists(mark)) return;
    make_directories(mark.parent_path());
    write_file(mark, "");
  });
}

void RepoCache::prepare() const {
  make_directories(root_ / "blobs");
  make_directories(root_ / "snapshots");
  make_directories(cache_ / ".locks" / folder_);
  if_writable([&] {
    const fs::path tag = cache_ / "CACHEDIR.TAG";  // bford.info/cachedir
    if (!file_exists(tag)) write_file(tag, "Signature: 8a477f597d28d172789f06886806bc55\n");
  });
}

}  // namespace atl::hub
