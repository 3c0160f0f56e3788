#include "atoll/http/asset.h"

#include <algorithm>

namespace atl::http {

const Asset* find_asset(const std::vector<Asset>& assets, std::string_view path) {
  if (path == "/") path = "/index.html";
  if (path == "/favicon.ico") path = "/icon.svg";
  const auto found = std::ranges::find(assets, path, &Asset::path);
  return found == assets.end() ? nullptr : &*found;
}

}  // namespace atl::http
