#pragma once

#include <string_view>
#include <vector>

namespace atl::http {

/// A file of a page, embedded in the program by cmake/embed.cmake.
struct Asset {
  std::string_view path;  ///< "/app.js"
  std::string_view type;  ///< "text/javascript; charset=utf-8"
  std::string_view text;
};

/// The file that a request for `path` asks for; null where there is none. "/" stands for
/// "/index.html", and "/favicon.ico", for which browsers ask by themselves, for "/icon.svg".
const Asset* find_asset(const std::vector<Asset>& assets, std::string_view path);

}  // namespace atl::http
