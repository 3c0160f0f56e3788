#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <tuple>

#include "tidy/rules.h"

namespace atl::tidy {

namespace {

constexpr const char* kExceptionsFile = "tools/tidy/exceptions.txt";

struct Exception {
  std::string rule;
  std::string path;
  int line = 0;
  bool used = false;
};

std::vector<Exception> read_exceptions(const Tree& tree, Findings& findings) {
  std::vector<Exception> exceptions;
  const SourceFile* file = tree.find(kExceptionsFile);
  if (file == nullptr) return exceptions;
  for (std::size_t i = 0; i < file->lines.size(); ++i) {
    const std::string& line = file->lines[i];
    if (line.empty() || line.front() == '#') continue;
    Exception exception;
    exception.line = static_cast<int>(i) + 1;
    const std::size_t hash = line.find('#');
    std::istringstream words(line.substr(0, hash));
    words >> exception.rule >> exception.path;
    if (hash == line.npos || line.find_first_not_of(" #", hash) == line.npos) {
      findings.push_back(
          {kExceptionsFile, exception.line, "exceptions", "an exception needs a # reason"});
    }
    exceptions.push_back(exception);
  }
  return exceptions;
}

}  // namespace

Findings check_all(const Tree& tree) {
  Findings findings;
  check_floors(tree, findings);
  check_cycles(tree, findings);
  check_dependencies(tree, findings);
  check_tour(tree, findings);
  check_readmes(tree, findings);
  check_folder_sizes(tree, findings);
  check_dead_files(tree, findings);
  check_docstrings(tree, findings);
  check_text(tree, findings);
  check_host_access(tree, findings);

  std::vector<Exception> exceptions = read_exceptions(tree, findings);
  std::erase_if(findings, [&](const Finding& finding) {
    for (Exception& exception : exceptions) {
      if (exception.rule != finding.rule || exception.path != finding.path) continue;
      exception.used = true;
      return true;
    }
    return false;
  });
  for (const Exception& exception : exceptions) {
    if (exception.used) continue;
    findings.push_back({kExceptionsFile, exception.line, "exceptions",
                        fmt::format("nothing in {} breaks `{}`: remove this line", exception.path,
                                    exception.rule)});
  }
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.path, a.line, a.rule) < std::tie(b.path, b.line, b.rule);
  });
  return findings;
}

}  // namespace atl::tidy
