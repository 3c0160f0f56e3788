#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr std::size_t kMaxColumns = 100;

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not inside a UTF-8 sequence
  }));
}

bool is_conditional(const std::string& line) {
  const std::size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return false;
  const std::size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos) return false;
  return line.compare(word, 2, "if") == 0 || line.compare(word, 4, "elif") == 0;
}

// Highway compiles such a header once per target and guards it by its own toggle.
bool is_per_target(const SourceFile& file) {
  return file.path.ends_with("-inl.h") || file.code.find("HWY_TARGET_TOGGLE") != file.code.npos;
}

bool may_be_conditional(const SourceFile& file) {
  return file.path.starts_with("src/atoll/device/") || file.path == "src/atoll/base/check.h" ||
         is_per_target(file);
}

// Written in two parts, so that this file passes its own rule.
const std::string kMachinePaths[] = {std::string("/") + "work/", std::string("/") + "home/",
                                     std::string("/") + "root/"};

// The user that MPI's operators give each container: no machine's own.
constexpr std::string_view kContainerUser = "mpiuser";

const std::string* find_machine_path(const std::string& line) {
  for (const std::string& prefix : kMachinePaths) {
    for (std::size_t at = line.find(prefix); at != line.npos; at = line.find(prefix, at + 1)) {
      const char before = at == 0 ? ' ' : line[at - 1];
      const bool inside_path = std::isalnum(static_cast<unsigned char>(before)) != 0 ||
                               std::string("_.-/}~").find(before) != std::string::npos;
      const bool is_known =
          line.compare(at + prefix.size(), kContainerUser.size(), kContainerUser) == 0;
      if (!inside_path && !is_known) return &prefix;
    }
  }
  return nullptr;
}

void check_cpp_line(const SourceFile& file, int line, Findings& findings) {
  const std::string& text = file.lines[static_cast<std::size_t>(line - 1)];
  if (text.find('\t') != text.npos) {
    findings.push_back({file.path, line, "tab", "a tab; indent with two spaces"});
  }
  if (columns(text) > kMaxColumns) {
    findings.push_back({file.path, line, "columns",
                        fmt::format("{} columns, {} allowed", columns(text), kMaxColumns)});
  }
  if (is_conditional(text) && text.find("HWY_") == text.npos && !may_be_conditional(file)) {
    findings.push_back({file.path, line, "conditional",
                        "conditional compilation outside device/: choose a file in CMake instead"});
  }
}

bool has_pragma_once(const SourceFile& file) {
  return std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end();
}

}  // namespace

void check_text(const Tree& tree, Findings& findings) {
  for (const SourceFile& file : tree.files) {
    if (file.is_header() && !has_pragma_once(file) && !is_per_target(file)) {
      findings.push_back({file.path, 1, "pragma-once", "no #pragma once"});
    }
    for (int line = 1; line <= static_cast<int>(file.lines.size()); ++line) {
      if (file.is_cpp()) check_cpp_line(file, line, findings);
      if (const std::string* prefix =
              find_machine_path(file.lines[static_cast<std::size_t>(line - 1)])) {
        findings.push_back({file.path, line, "machine-path",
                            fmt::format("{}... exists on one machine only", *prefix)});
      }
    }
  }
}

}  // namespace atl::tidy
