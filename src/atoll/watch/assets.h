#pragma once

#include <string_view>
#include <vector>

namespace atl::watch {

/// A file of the page, which is in the program.
struct Asset {
  std::string_view path;  ///< "/app.js"
  std::string_view type;  ///< "text/javascript; charset=utf-8"
  std::string_view text;
};

/// All of them; cmake/embed.cmake makes the list of the files in page/.
const std::vector<Asset>& assets();

}  // namespace atl::watch
