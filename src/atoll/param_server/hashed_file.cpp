#include "atoll/param_server/hashed_file.h"

#include "atoll/base/hash.h"

namespace atl::param_server {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 32;

}  // namespace

void make_directory(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw io_error("cannot create", dir, error.value());
}

void write_hashed(const fs::path& path, const std::string& content) {
  write_file(path, to_hex(hash_bytes(content.data(), content.size())) + content);
}

std::string read_hashed(const fs::path& path) {
  const std::string text = read_file(path);
  std::string content = text.size() < kHashDigits ? "" : text.substr(kHashDigits);
  if (text.size() < kHashDigits ||
      text.substr(0, kHashDigits) != to_hex(hash_bytes(content.data(), content.size()))) {
    throw damaged_error("{} is damaged; remove {}, and the run goes on from its last checkpoint",
                        path.string(), path.parent_path().string());
  }
  return content;
}

}  // namespace atl::param_server
