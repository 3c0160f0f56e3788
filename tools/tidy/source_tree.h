#pragma once

// The tree that tidy looks at: every text file of the repository, read once.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace atl::tidy {

/// One text file, with its lines and, for C++, the same lines without comments and literals.
struct SourceFile {
  std::string path;                ///< relative to the root, with '/'
  std::vector<std::string> lines;  ///< as they are, without line ends
  std::string code;                ///< C++ only: blank_comments_and_literals() of the whole text

  bool is_header() const { return path.ends_with(".h"); }
  bool is_cpp() const { return is_header() || path.ends_with(".cpp"); }
  bool is_test() const { return path.ends_with("_test.cpp"); }
};

/// All text files below a root, sorted by path.
struct Tree {
  std::filesystem::path root;
  std::vector<SourceFile> files;

  /// The file with this relative path, or null.
  const SourceFile* find(std::string_view path) const;
};

/// Something that breaks a rule; line 0 is the file as a whole.
struct Finding {
  std::string path;
  int line = 0;
  std::string rule;
  std::string message;
};

using Findings = std::vector<Finding>;

/// Reads what git would track: skips hidden folders but .ci, what .gitignore names (plain names and
/// `name*` only), binary files and files above 4 MiB. Throws Error when `root` is not a folder.
Tree load_tree(const std::filesystem::path& root);

/// The folder of src/atoll that a path lies in ("ops" for "src/atoll/ops/cpu/x.cpp"), or "".
std::string module_of(std::string_view path);

}  // namespace atl::tidy
