#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// What a server finds in its directory.
struct StoredSlices {
  RunSpec spec;
  std::vector<std::pair<std::uint32_t, std::string>> slices;
  Term term;  ///< see Server::restore_name
  ServerId server = kNobody;
};

/// Writes slices, each as a file that is there whole or not at all. Throws Error(kIo).
void write_slices(const std::filesystem::path& dir, const RunSpec& spec,
                  const std::vector<std::pair<std::uint32_t, std::string>>& slices);
/// What the server is called. Throws Error(kIo).
void write_name(const std::filesystem::path& dir, const Term& term, ServerId server);
/// Nothing: the directory has none. Throws Error(kDamaged) for a file that is not what was written.
std::optional<StoredSlices> read_slices(const std::filesystem::path& dir);

}  // namespace atl::param_server
