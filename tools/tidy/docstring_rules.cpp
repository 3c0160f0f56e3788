#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "tidy/code.h"
#include "tidy/rules.h"

namespace atl::tidy {

namespace {

bool is_public_header(const SourceFile& file) {
  if (!file.is_header() || module_of(file.path).empty() || file.path.ends_with("/testing.h")) {
    return false;
  }
  // src/atoll/<folder>/x.h and src/atoll/<folder>/<room>/x.h.
  const std::ptrdiff_t depth = std::count(file.path.begin(), file.path.end(), '/');
  if (depth == 3) return true;
  const std::string below = file.path.substr(std::string_view("src/atoll/").size());
  static const std::regex backend(".*/(cpu|cuda|fake_cuda|ref|nvcc|amx|no_|testing)[^/]*(/.*)?");
  return depth == 4 && !std::regex_match(below, backend);
}

// Obvious or said elsewhere: operators, members defined outside their class, specialisations,
// forward declarations, macros in capitals.
bool is_exempt(const Declaration& declaration) {
  static const std::regex outside_member(
      "^[^(]*\\b[A-Za-z_0-9]+(<[^()]*>)?::~?[A-Za-z_0-9]+ ?\\(.*");
  static const std::regex macro("^[A-Z][A-Z0-9_]+ ?\\(.*");
  const std::string& head = declaration.head;
  if (head.find("operator") != head.npos || head.starts_with("template <>") ||
      head.starts_with("template<>") || head.starts_with("friend ") ||
      head.starts_with("static_assert") || head.starts_with("extern template")) {
    return true;
  }
  if (declaration.kind == Declaration::Kind::kType) return !declaration.has_body;
  return std::regex_match(head, macro) ||
         (declaration.has_body && std::regex_match(head, outside_member));
}

std::string_view trimmed(const std::string& line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == line.npos ? std::string_view() : std::string_view(line).substr(first);
}

// A docstring ends on the line above, or stands behind the declaration as `///<`.
bool has_docstring(const SourceFile& file, const Declaration& declaration) {
  const auto line = [&](int number) -> const std::string& {
    return file.lines[static_cast<std::size_t>(number - 1)];
  };
  if (line(declaration.last_line).find("///<") != std::string::npos) return true;
  return declaration.first_line > 1 && trimmed(line(declaration.first_line - 1)).starts_with("///");
}

}  // namespace

void check_docstrings(const Tree& tree, Findings& findings) {
  for (const SourceFile& file : tree.files) {
    if (!is_public_header(file)) continue;
    int documented_until = -1;  // last line of the latest documented declaration
    for (const Declaration& declaration : find_declarations(file.code)) {
      if (declaration.member || declaration.internal) continue;
      const bool documented =
          has_docstring(file, declaration) || declaration.first_line == documented_until + 1;
      if (documented) documented_until = declaration.last_line;
      if (documented || declaration.kind == Declaration::Kind::kOther || is_exempt(declaration)) {
        continue;
      }
      findings.push_back({file.path, declaration.first_line, "docstring",
                          fmt::format("no /// above `{}`", declaration.head.substr(0, 60))});
    }
  }
}

}  // namespace atl::tidy
