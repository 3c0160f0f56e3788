#include "tidy/includes.h"

#include <regex>

namespace atl::tidy {

std::vector<Include> find_includes(const Tree& tree) {
  static const std::regex directive("^\\s*#\\s*include\\s*\"([^\"]+)\".*");
  std::vector<Include> includes;
  for (const SourceFile& file : tree.files) {
    if (!file.is_cpp()) continue;
    const std::size_t slash = file.path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.path.substr(0, slash + 1);
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (file.lines[i].find("include") == std::string::npos) continue;
      if (!std::regex_match(file.lines[i], match, directive)) continue;
      for (const std::string& base : {std::string("src/"), std::string("tools/"), folder}) {
        if (tree.find(base + match[1].str()) == nullptr) continue;
        includes.push_back({file.path, static_cast<int>(i) + 1, base + match[1].str()});
        break;
      }
    }
  }
  return includes;
}

}  // namespace atl::tidy
