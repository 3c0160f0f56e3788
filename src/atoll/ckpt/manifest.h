#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/hash.h"

namespace atl::ckpt {

/// One file of a checkpoint as it was when it was written.
struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string hash;  ///< XXH3-128, 32 hexadecimal digits
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

/// manifest.json of a checkpoint: written last, so that what has one was whole.
struct Manifest {
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
};

constexpr const char* kManifestFile = "manifest.json";

/// The text of manifest.json.
std::string to_json(const Manifest& manifest);

/// Reads it back; throws Error(kDamaged) naming `origin` for any text but one that to_json gives,
/// so that no changed byte goes unseen, and Error(kUser) for one of a later version.
Manifest parse_manifest(std::string_view text, const std::string& origin);

/// Bytes and hash of a file, read in pieces. Throws Error(kUser) when it does not exist.
ManifestFile measure_file(const std::filesystem::path& path);

}  // namespace atl::ckpt
