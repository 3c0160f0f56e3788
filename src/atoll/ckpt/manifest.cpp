#include "atoll/ckpt/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/json.h"

namespace atl::ckpt {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "atoll checkpoint";
constexpr int kVersion = 1;
constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();

Manifest from_json(const Json& root, const std::string& origin) {
  const auto version = whole_number(root.at("version"));
  if (root.at("format") == kFormat && version > kVersion) {
    throw user_error("{} is of version {}, this atoll knows {}; use a newer one", origin, version,
                     kVersion);
  }
  Manifest manifest;
  manifest.step = whole_number(root.at("step"));
  for (const Json& item : root.at("files")) {
    manifest.files.push_back(
        {item.at("name").get<std::string>(),
         static_cast<std::uint64_t>(whole_number(item.at("bytes"), 0, kMaxBytes)),
         item.at("xxh3_128").get<std::string>()});
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.hash}});
  }
  const Json root = {
      {"format", kFormat}, {"version", kVersion}, {"step", manifest.step}, {"files", files}};
  return root.dump(2) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& origin) {
  Manifest manifest;
  std::string written;
  try {
    manifest = from_json(parse_ordered_json(text, origin), origin);
    written = to_json(manifest);  // throws when a name is not UTF-8
  } catch (const Json::exception& error) {
    throw damaged_error("{} is damaged: {}", origin, json_reason(error));
  }
  if (written != text) throw damaged_error("{} is damaged: not as atoll wrote it", origin);
  return manifest;
}

// Not mapped: a disk's read error must be an Error here, and would be SIGBUS there.
ManifestFile measure_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) throw user_error("there is no file {}", path.string());
  if (fd < 0) throw io_error("cannot open", path, errno);
  Hasher hasher;
  ManifestFile file;
  std::vector<char> piece(std::size_t{256} << 10);  // hashed out of the second cache
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    const int error_number = errno;
    if (n <= 0) ::close(fd);
    if (n < 0) throw io_error("cannot read", path, error_number);
    if (n == 0) break;
    hasher.update(piece.data(), static_cast<std::size_t>(n));
    file.bytes += static_cast<std::uint64_t>(n);
  }
  file.name = path.filename().string();
  file.hash = to_hex(hasher.digest());
  return file;
}

}  // namespace atl::ckpt
