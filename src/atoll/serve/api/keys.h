#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/http/request.h"

namespace atl::serve::api {

/// The secrets that clients show: Authorization: Bearer KEY.
class KeyList {
 public:
  /// None: nobody needs one.
  KeyList() = default;
  /// Of a file's content: a key a line, each one word of at least 16 letters, digits, '-', '_' and
  /// '.'; empty lines and those that begin with '#' are left out. Throws Error(kUser) naming
  /// `origin` and the line, also for a file without a key.
  static KeyList parse(std::string_view content, const std::string& origin);

  bool is_empty() const { return keys_.empty(); }
  /// Who asks: a name for the key that a request shows, the same as long as the list is. Nothing
  /// where it shows none of them. How long this takes tells nothing of the keys but their lengths.
  std::optional<std::string> asker(const http::Request& request) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace atl::serve::api
