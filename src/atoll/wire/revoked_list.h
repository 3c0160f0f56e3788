#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

namespace atl::wire {

/// A signed list of the certificates that are not to be trusted any more.
struct RevokedList {
  std::int64_t number = 0;  ///< each that an authority signs has the next; 0: it was not numbered
  std::set<std::string> serials;
  std::string pem;
};

/// Reads a list. Throws Error for a file that cannot be read, is damaged, or is not signed by that
/// authority.
RevokedList read_revoked(const std::filesystem::path& file, const std::string& authority_pem);

}  // namespace atl::wire
