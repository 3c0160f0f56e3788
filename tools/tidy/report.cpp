#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tidy/code.h"
#include "tidy/includes.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr std::size_t kShown = 5;

struct Entry {
  int lines = 0;
  std::string what;
};

std::string largest(std::string_view title, std::vector<Entry> entries) {
  const std::size_t shown = std::min(kShown, entries.size());
  std::partial_sort(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(shown),
                    entries.end(),
                    [](const Entry& a, const Entry& b) { return a.lines > b.lines; });
  std::string text = fmt::format("{}\n", title);
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("  {:5} lines  {}\n", entries[i].lines, entries[i].what);
  }
  return text;
}

std::string stem_of(std::string path) {
  for (const std::string end : {"_slow_test.cpp", "_test.cpp", ".cpp", ".h"}) {
    if (path.ends_with(end)) return path.substr(0, path.size() - end.size());
  }
  return path;
}

std::string unused_headers(const Tree& tree) {
  std::set<std::string> used;
  for (const Include& include : find_includes(tree)) {
    if (stem_of(include.from) != stem_of(include.to)) used.insert(include.to);
  }
  std::string text;
  for (const SourceFile& file : tree.files) {
    if (file.is_header() && !used.contains(file.path)) text += fmt::format("  {}\n", file.path);
  }
  return text.empty() ? text : "included by their own source and test only\n" + text;
}

}  // namespace

std::string report(const Tree& tree) {
  std::vector<Entry> files;
  std::vector<Entry> functions;
  for (const SourceFile& file : tree.files) {
    if (!file.is_cpp()) continue;
    files.push_back({static_cast<int>(file.lines.size()), file.path});
    for (const Declaration& declaration : find_declarations(file.code)) {
      if (declaration.kind != Declaration::Kind::kFunction || !declaration.has_body) continue;
      const std::string name = declaration.head.substr(0, declaration.head.find('('));
      functions.push_back({declaration.last_line - declaration.first_line + 1,
                           fmt::format("{}:{} {}", file.path, declaration.first_line, name)});
    }
  }
  return largest("largest files", std::move(files)) +
         largest("longest functions", std::move(functions)) + unused_headers(tree);
}

}  // namespace atl::tidy
