#include <fmt/format.h>

#include <map>
#include <set>
#include <sstream>

#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr const char* kCMakeFile = "src/atoll/CMakeLists.txt";
constexpr const char* kFloorsFile = "tools/tidy/floors.txt";
constexpr const char* kTourFile = "docs/tour.md";
constexpr std::size_t kMostFiles = 60;  // of a folder's own

using Folders = std::map<std::string, std::set<std::string>>;

// What each folder's call of atoll_module() names behind DEPS.
Folders declared_dependencies(const SourceFile& cmake) {
  std::string text;
  for (const std::string& line : cmake.lines) text += line.substr(0, line.find('#')) + ' ';
  constexpr std::string_view kCall = "atoll_module(";
  Folders folders;
  for (std::size_t at = text.find(kCall); at != text.npos; at = text.find(kCall, at + 1)) {
    const std::size_t begin = at + kCall.size();
    std::istringstream words(text.substr(begin, text.find(')', begin) - begin));
    std::string module;
    words >> module;
    std::set<std::string>& named = folders[module];
    bool in_deps = false;
    for (std::string word; words >> word;) {
      if (word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == word.npos) {
        in_deps = word == "DEPS";
      } else if (in_deps) {
        named.insert(word);
      }
    }
  }
  return folders;
}

Folders included_folders(const Tree& tree) {
  Folders folders;
  for (const Include& include : find_includes(tree)) {
    const std::string from = module_of(include.from);
    const std::string to = module_of(include.to);
    if (!from.empty() && !to.empty() && from != to) folders[from].insert(to);
  }
  return folders;
}

}  // namespace

void check_dependencies(const Tree& tree, Findings& findings) {
  const SourceFile* cmake = tree.find(kCMakeFile);
  if (cmake == nullptr) return;
  Folders included = included_folders(tree);
  for (const auto& [folder, named] : declared_dependencies(*cmake)) {
    for (const std::string& to : included[folder]) {
      if (named.contains(to)) continue;
      findings.push_back({kCMakeFile, 0, "dependency",
                          fmt::format("{} includes files of {}: add it to its DEPS", folder, to)});
    }
    for (const std::string& to : named) {
      if (included[folder].contains(to)) continue;
      findings.push_back(
          {kCMakeFile, 0, "dependency",
           fmt::format("{} has {} in its DEPS and includes nothing of it", folder, to)});
    }
  }
}

void check_tour(const Tree& tree, Findings& findings) {
  const SourceFile* floors = tree.find(kFloorsFile);
  const SourceFile* tour = tree.find(kTourFile);
  if (floors == nullptr || tour == nullptr) return;
  const std::set<std::string> shown(tour->lines.begin(), tour->lines.end());
  for (const std::string& line : floors->lines) {
    if (line.empty() || line.front() == '#') continue;
    const bool is_folder = line.find('/') > line.find(' ');
    if (!is_folder || shown.contains(line)) continue;
    findings.push_back(
        {kTourFile, 0, "tour", fmt::format("this line of {} is not there: {}", kFloorsFile, line)});
  }
}

void check_readmes(const Tree& tree, Findings& findings) {
  std::set<std::string> folders;
  for (const SourceFile& file : tree.files) {
    if (!module_of(file.path).empty()) folders.insert(module_of(file.path));
  }
  for (const std::string& folder : folders) {
    const std::string path = fmt::format("src/atoll/{}/README.md", folder);
    if (tree.find(path) != nullptr) continue;
    findings.push_back({path, 0, "readme",
                        "missing: say what the folder is, what it may use, and where to begin"});
  }
}

void check_folder_sizes(const Tree& tree, Findings& findings) {
  std::map<std::string, std::size_t> sizes;
  for (const SourceFile& file : tree.files) {
    const bool counts = file.is_cpp() || file.is_header() || file.path.ends_with(".cuh");
    if (counts && !module_of(file.path).empty()) ++sizes[file.path.substr(0, file.path.rfind('/'))];
  }
  for (const auto& [folder, size] : sizes) {
    if (size <= kMostFiles) continue;
    findings.push_back({folder, 0, "folder",
                        fmt::format("has {} files of its own, and {} are the most; make rooms",
                                    size, kMostFiles)});
  }
}

}  // namespace atl::tidy
