#pragma once

#include <string_view>
#include <vector>

namespace atl::watch {

/// A file of the page, embedded in the program.
struct Asset {
  std::string_view path;  ///< "/app.js"
  std::string_view type;  ///< "text/javascript; charset=utf-8"
  std::string_view text;
};

/// All files of the page; cmake/embed.cmake makes this list from the files in page/.
const std::vector<Asset>& assets();

}  // namespace atl::watch
