#include "atoll/ckpt/checkpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/lock.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/rename.h"
#include "atoll/base/log.h"
#include "atoll/ckpt/checkpoint_paths.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kNamePrefix = "step-";

template <typename Int>
std::optional<Int> parse_number(std::string_view text) {
  Int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_running(int pid) {
  return pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH);
}

// Whether somebody fills or moves a directory of a stale name. Who fills one holds it; the number
// of a process that was killed may be another's by now.
bool is_in_use(const fs::path& path, std::string_view prefix, int pid) {
  if (prefix == kReplacedPrefix) return is_running(pid);
  try {
    const DirectoryLock lock(path, "");
    return false;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kUser || is_running(pid);  // kIo: no locks there
  }
}

// What a name that stale_name made says; nothing for others.
struct Stale {
  std::string_view prefix;
  std::string checkpoint;
  int pid = 0;
};
std::optional<Stale> parse_stale(const std::string& name) {
  for (const std::string_view prefix : {kTemporaryPrefix, kReplacedPrefix}) {
    const std::size_t dash = name.rfind('-');
    if (!name.starts_with(prefix) || dash < prefix.size()) continue;
    const std::optional<int> pid = parse_number<int>(std::string_view(name).substr(dash + 1));
    std::string checkpoint = name.substr(prefix.size(), dash - prefix.size());
    if (pid && parse_checkpoint_name(checkpoint)) return Stale{prefix, std::move(checkpoint), *pid};
  }
  return std::nullopt;
}

constexpr const char* kMissing = "is missing";

// What is wrong with a file of a checkpoint, whatever it has in it; "": nothing. A device, a pipe,
// a directory or a link to itself in its place is damage, and no mistake of who reads it.
std::string wrong_with(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::regular) return "";
  if (type == fs::file_type::not_found) return kMissing;
  if (error == std::errc::too_many_symbolic_link_levels) return "is a link that leads to itself";
  if (type == fs::file_type::none) throw io_error("cannot look at", path, error.value());
  return type == fs::file_type::directory ? "is a directory" : "is no regular file";
}

std::string difference(const fs::path& directory, const ManifestFile& expected) {
  const std::string wrong = wrong_with(directory / expected.name);
  if (!wrong.empty()) return wrong;
  const ManifestFile found = measure_file(directory / expected.name);
  if (found.bytes != expected.bytes) {
    return fmt::format("has {} bytes, was written with {}", found.bytes, expected.bytes);
  }
  if (found.hash != expected.hash) {
    return fmt::format("has hash {}, was written with {}", found.hash, expected.hash);
  }
  return "";
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:08}", kNamePrefix, step);
}

std::optional<std::int64_t> parse_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(std::string_view(name).substr(kNamePrefix.size()));
  if (!step || *step < 0 || checkpoint_name(*step) != name) return std::nullopt;
  return step;
}

std::string stale_name(std::string_view prefix, std::int64_t step) {
  return fmt::format("{}{}-{}", prefix, checkpoint_name(step), ::getpid());
}

namespace {

Manifest manifest_of(const fs::path& directory) {
  if (!directory_exists(directory)) {
    throw user_error("there is no checkpoint directory {}", directory.string());
  }
  const fs::path manifest_path = directory / kManifestFile;
  std::string wrong = wrong_with(manifest_path);
  if (wrong == kMissing) {
    throw damaged_error("{} is damaged: it has no {}", directory.string(), kManifestFile);
  }
  if (wrong.empty() && fs::file_size(manifest_path) > kMaxFileBytes) wrong = "is too large";
  if (!wrong.empty()) {
    throw damaged_error("{} is damaged: its {} {}", directory.string(), kManifestFile, wrong);
  }
  const Manifest manifest = parse_manifest(read_file(manifest_path), manifest_path.string());
  const auto named = parse_checkpoint_name(fs::absolute(directory).lexically_normal().filename());
  if (named && *named != manifest.step) {
    throw damaged_error("{} is damaged: it says step {}", manifest_path.string(), manifest.step);
  }
  return manifest;
}

}  // namespace

CheckpointInfo checkpoint_at(const fs::path& root, std::int64_t step) {
  const fs::path directory = root / checkpoint_name(step);
  Manifest manifest = manifest_of(directory);
  return {directory, manifest.step, std::move(manifest.files)};
}

CheckpointInfo verify_checkpoint(const fs::path& directory, ThreadPool* threads) {
  const Manifest manifest = manifest_of(directory);
  const std::size_t count = manifest.files.size();
  std::vector<std::string> differs(count);
  std::vector<std::exception_ptr> failed(count);
  const auto look = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    try {
      differs[at] = difference(directory, manifest.files[at]);
    } catch (...) {
      failed[at] = std::current_exception();
    }
  };
  if (threads != nullptr) {
    threads->run(static_cast<std::int64_t>(count), look);
  } else {
    for (std::size_t i = 0; i < count; ++i) look(static_cast<std::int64_t>(i));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (failed[i]) std::rethrow_exception(failed[i]);
    if (differs[i].empty()) continue;
    throw damaged_error("{} is damaged: it {}", (directory / manifest.files[i].name).string(),
                        differs[i]);
  }
  return {directory, manifest.step, manifest.files};
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& root) {
  std::vector<std::int64_t> steps;
  if (!path_exists(root)) return steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    const auto step = parse_checkpoint_name(entry.path().filename().string());
    std::error_code ignored;  // a link that leads to itself is no checkpoint
    if (step && entry.is_directory(ignored)) steps.push_back(*step);
  }
  if (error) throw io_error("cannot list", root, error.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

void set_aside_newer(const fs::path& root, std::int64_t step) {
  for (const std::int64_t newer : checkpoint_steps(root)) {
    if (newer <= step) continue;
    const fs::path from = root / checkpoint_name(newer);
    const fs::path to = root / ("damaged-" + checkpoint_name(newer));
    std::error_code error;
    fs::remove_all(to, error);
    if (!error) fs::rename(from, to, error);
    if (error) throw io_error("cannot set aside", from, error.value());
    log::warning("{} is now {}; remove it when you have looked at it", from.string(), to.string());
  }
  sync_directory(root);
}

void clean_stale(const fs::path& root) {
  if (!path_exists(root)) return;
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    entries.push_back(entry.path());
  }
  for (const fs::path& path : entries) {
    const std::optional<Stale> stale = parse_stale(path.filename().string());
    if (!stale || is_in_use(path, stale->prefix, stale->pid)) continue;
    const fs::path owner = root / stale->checkpoint;
    if (stale->prefix == kReplacedPrefix && !path_exists(owner)) {
      rename_path(path, owner);
      log::warning("put {} back, which an interrupted save had moved aside", owner.string());
      continue;
    }
    std::error_code error;
    fs::remove_all(path, error);
    if (error) log::warning("cannot remove {}: {}", path.string(), error.message());
  }
}

}  // namespace atl::ckpt
