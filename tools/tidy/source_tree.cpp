#include "tidy/source_tree.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "tidy/code.h"

namespace atl::tidy {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kMaxBytes = 4 << 20;

// One line of .gitignore: a name, perhaps ending in '*', perhaps only at the root.
struct Ignored {
  std::string name;
  bool at_root = false;
  bool prefix = false;

  bool matches(const std::string& path) const {
    const std::size_t slash = path.rfind('/');
    if (at_root && slash != std::string::npos) return false;
    const std::string last = slash == std::string::npos ? path : path.substr(slash + 1);
    return prefix ? last.starts_with(name) : last == name;
  }
};

std::vector<Ignored> read_ignored(const fs::path& root) {
  std::vector<Ignored> ignored{{".git", false, false}};
  if (!fs::exists(root / ".gitignore")) return ignored;
  std::istringstream text(read_file(root / ".gitignore"));
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line.front() == '#') continue;
    Ignored entry;
    if (line.front() == '/') {
      entry.at_root = true;
      line.erase(0, 1);
    }
    if (!line.empty() && line.back() == '/') line.pop_back();
    if (!line.empty() && line.back() == '*') {
      entry.prefix = true;
      line.pop_back();
    }
    entry.name = line;
    if (!line.empty()) ignored.push_back(entry);
  }
  return ignored;
}

std::optional<SourceFile> load(const fs::path& file, const std::string& path) {
  if (fs::file_size(file) > kMaxBytes) return std::nullopt;
  const std::string text = read_file(file);
  if (text.find('\0') != std::string::npos) return std::nullopt;
  SourceFile source;
  source.path = path;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) source.lines.push_back(line);
  if (source.is_cpp()) source.code = blank_comments_and_literals(text);
  return source;
}

}  // namespace

const SourceFile* Tree::find(std::string_view path) const {
  const auto it =
      std::lower_bound(files.begin(), files.end(), path,
                       [](const SourceFile& f, std::string_view p) { return f.path < p; });
  return it != files.end() && it->path == path ? &*it : nullptr;
}

Tree load_tree(const fs::path& root) {
  if (!fs::is_directory(root)) throw user_error("tidy: {} is not a folder", root.string());
  const std::vector<Ignored> ignored = read_ignored(root);
  Tree tree{root, {}};
  for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
    const std::string path = it->path().lexically_relative(root).generic_string();
    const bool skip = std::any_of(ignored.begin(), ignored.end(),
                                  [&](const Ignored& entry) { return entry.matches(path); });
    if (skip) {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || it->is_symlink()) continue;
    if (auto file = load(it->path(), path)) tree.files.push_back(std::move(*file));
  }
  std::sort(tree.files.begin(), tree.files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return tree;
}

std::string module_of(std::string_view path) {
  constexpr std::string_view kSources = "src/atoll/";
  if (!path.starts_with(kSources)) return "";
  path.remove_prefix(kSources.size());
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

}  // namespace atl::tidy
