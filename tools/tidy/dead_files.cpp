#include <fmt/format.h>

#include <set>
#include <sstream>

#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// The folders whose *.cpp src/atoll/CMakeLists.txt globs: "ops", and "ops/cpu" for `DIRS cpu`.
std::set<std::string> globbed_folders(const SourceFile& cmake) {
  std::string text;
  for (const std::string& line : cmake.lines) text += line.substr(0, line.find('#')) + ' ';
  constexpr std::string_view kCall = "atoll_module(";
  std::set<std::string> folders;
  for (std::size_t at = text.find(kCall); at != text.npos; at = text.find(kCall, at + 1)) {
    const std::size_t begin = at + kCall.size();
    std::istringstream words(text.substr(begin, text.find(')', begin) - begin));
    std::string module;
    words >> module;
    folders.insert("src/atoll/" + module);
    bool in_dirs = false;
    for (std::string word; words >> word;) {
      if (word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == word.npos) {
        in_dirs = word == "DIRS";
      } else if (in_dirs) {
        folders.insert("src/atoll/" + module + "/" + word);
      }
    }
  }
  return folders;
}

// Outside src/atoll: the nearest CMakeLists.txt upwards names the file or globs its kind.
bool picked_up(const Tree& tree, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  for (std::string folder = folder_of(path);; folder = folder_of(folder)) {
    if (const SourceFile* cmake =
            tree.find(folder.empty() ? "CMakeLists.txt" : folder + "/CMakeLists.txt")) {
      for (const std::string& line : cmake->lines) {
        if (line.find(name) != line.npos) return true;
        const std::size_t star = line.find('*');  // "*.cpp" or "*_bench.cpp"
        const std::size_t end = line.find(".cpp", star);
        if (end != line.npos && name.ends_with(line.substr(star + 1, end + 3 - star))) return true;
      }
      return false;
    }
    if (folder.empty()) return false;
  }
}

}  // namespace

void check_dead_files(const Tree& tree, Findings& findings) {
  std::set<std::string> included;
  for (const Include& include : find_includes(tree)) {
    if (include.from != include.to) included.insert(include.to);
  }
  const SourceFile* cmake = tree.find("src/atoll/CMakeLists.txt");
  const std::set<std::string> globbed =
      cmake == nullptr ? std::set<std::string>() : globbed_folders(*cmake);
  for (const SourceFile& file : tree.files) {
    if (file.is_header()) {
      if (included.contains(file.path)) continue;
      findings.push_back({file.path, 0, "dead", "no other file includes this header"});
    } else if (file.is_cpp()) {
      const bool built = module_of(file.path).empty() ? picked_up(tree, file.path)
                                                      : globbed.contains(folder_of(file.path));
      if (built || included.contains(file.path)) continue;
      findings.push_back({file.path, 0, "dead", "no CMakeLists.txt picks this file up"});
    }
  }
}

}  // namespace atl::tidy
