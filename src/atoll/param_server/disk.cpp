#include "atoll/param_server/disk.h"

#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/base/paths.h"

namespace atl::param_server {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSpecFile = "spec";
constexpr std::string_view kSlicePrefix = "slice-";
constexpr std::size_t kHashDigits = 32;

// With the hash of the content before it.
void write_hashed(const fs::path& path, const std::string& content) {
  write_file(path, to_hex(hash_bytes(content.data(), content.size())) + content);
}

std::string read_hashed(const fs::path& path) {
  const std::string text = read_file(path);
  const std::string content = text.size() < kHashDigits ? "" : text.substr(kHashDigits);
  if (text.size() < kHashDigits ||
      text.substr(0, kHashDigits) != to_hex(hash_bytes(content.data(), content.size()))) {
    throw damaged_error("{} is damaged; remove {}, and the run goes on from its last checkpoint",
                        path.string(), path.parent_path().string());
  }
  return content;
}

}  // namespace

void write_slices(const fs::path& dir, const RunSpec& spec,
                  const std::vector<std::pair<std::uint32_t, std::string>>& slices) {
  if (slices.empty()) return;
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw io_error("cannot create", dir, error.value());
  if (!path_exists(dir / kSpecFile)) write_hashed(dir / kSpecFile, encode(Offer{spec}));
  for (const auto& [slice, bytes] : slices) {
    write_hashed(dir / fmt::format("{}{}", kSlicePrefix, slice), bytes);
  }
}

std::optional<StoredSlices> read_slices(const fs::path& dir) {
  if (dir.empty() || !path_exists(dir / kSpecFile)) return std::nullopt;
  const Message message = decode(read_hashed(dir / kSpecFile));
  const auto* offer = std::get_if<Offer>(&message);
  if (offer == nullptr) throw damaged_error("{} is damaged", (dir / kSpecFile).string());
  check_spec(offer->spec);
  StoredSlices stored = {.spec = offer->spec, .slices = {}};
  for (std::uint32_t slice = 0; slice < stored.spec.slices.size(); ++slice) {
    const fs::path path = dir / fmt::format("{}{}", kSlicePrefix, slice);
    if (path_exists(path)) stored.slices.emplace_back(slice, read_hashed(path));
  }
  return stored;
}

}  // namespace atl::param_server
