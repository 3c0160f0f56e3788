#pragma once

#include <string>
#include <vector>

#include "tidy/source_tree.h"

namespace atl::tidy {

/// One #include of a file of this repository.
struct Include {
  std::string from;  ///< path of the file that includes
  int line = 0;
  std::string to;  ///< path of the file included
};

/// Every `#include "..."` that names a file of the tree: below src/ (as in "atoll/nn/layer.h"),
/// tools/, or beside the including file.
std::vector<Include> find_includes(const Tree& tree);

}  // namespace atl::tidy
