#include <fmt/format.h>

#include <set>

#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// The folders of src/atoll that an atoll_module() builds, with all that is below them.
std::set<std::string> built_modules(const SourceFile& cmake) {
  std::string text;
  for (const std::string& line : cmake.lines) text += line.substr(0, line.find('#')) + ' ';
  constexpr std::string_view kCall = "atoll_module(";
  std::set<std::string> modules;
  for (std::size_t at = text.find(kCall); at != text.npos; at = text.find(kCall, at + 1)) {
    const std::size_t begin = at + kCall.size();
    modules.insert(text.substr(begin, text.find_first_of(" )", begin) - begin));
  }
  return modules;
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
  const std::set<std::string> modules =
      cmake == nullptr ? std::set<std::string>() : built_modules(*cmake);
  for (const SourceFile& file : tree.files) {
    if (file.is_header()) {
      if (included.contains(file.path)) continue;
      findings.push_back({file.path, 0, "dead", "no other file includes this header"});
    } else if (file.is_cpp()) {
      const std::string module = module_of(file.path);
      const bool built = module.empty() ? picked_up(tree, file.path) : modules.contains(module);
      if (built || included.contains(file.path)) continue;
      findings.push_back({file.path, 0, "dead", "no CMakeLists.txt picks this file up"});
    }
  }
}

}  // namespace atl::tidy
