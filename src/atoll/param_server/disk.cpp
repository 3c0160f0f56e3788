#include "atoll/param_server/disk.h"

#include "atoll/base/files/paths.h"
#include "atoll/param_server/hashed_file.h"

namespace atl::param_server {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSpecFile = "spec";
constexpr const char* kNameFile = "name";
constexpr std::string_view kSlicePrefix = "slice-";

}  // namespace

void write_slices(const fs::path& dir, const RunSpec& spec,
                  const std::vector<std::pair<std::uint32_t, std::string>>& slices) {
  if (slices.empty()) return;
  make_directory(dir);
  if (!path_exists(dir / kSpecFile)) write_hashed(dir / kSpecFile, encode(Offer{spec}));
  for (const auto& [slice, bytes] : slices) {
    write_hashed(dir / fmt::format("{}{}", kSlicePrefix, slice), bytes);
  }
}

void write_name(const fs::path& dir, const Term& term, ServerId server) {
  make_directory(dir);
  write_hashed(dir / kNameFile, encode(Welcome{.term = term, .server = server}));
}

std::optional<StoredSlices> read_slices(const fs::path& dir) {
  if (dir.empty() || !path_exists(dir / kSpecFile)) return std::nullopt;
  const Message message = decode(read_hashed(dir / kSpecFile));
  const auto* offer = std::get_if<Offer>(&message);
  if (offer == nullptr) throw damaged_error("{} is damaged", (dir / kSpecFile).string());
  check_spec(offer->spec);
  StoredSlices stored = {.spec = offer->spec, .slices = {}, .term = {}, .server = kNobody};
  if (path_exists(dir / kNameFile)) {
    const Message name = decode(read_hashed(dir / kNameFile));
    const auto* welcome = std::get_if<Welcome>(&name);
    if (welcome == nullptr) throw damaged_error("{} is damaged", (dir / kNameFile).string());
    stored.term = welcome->term;
    stored.server = welcome->server;
  }
  for (std::uint32_t slice = 0; slice < stored.spec.slices.size(); ++slice) {
    const fs::path path = dir / fmt::format("{}{}", kSlicePrefix, slice);
    if (path_exists(path)) stored.slices.emplace_back(slice, read_hashed(path));
  }
  return stored;
}

}  // namespace atl::param_server
