#include "atoll/model_dir/model_identity.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/model_dir/model_source.h"

namespace atl::model_dir {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kWholeBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kPlaces = 4096;
constexpr std::size_t kPieceBytes = 4096;

void add_piece(std::ifstream& file, const fs::path& path, std::uint64_t at, std::uint64_t bytes,
               Hasher& hasher) {
  std::array<char, kPieceBytes> piece;
  file.seekg(static_cast<std::streamoff>(at));
  file.read(piece.data(), static_cast<std::streamsize>(bytes));
  if (!file) throw user_error("cannot read {}", path.string());
  hasher.update(piece.data(), static_cast<std::size_t>(bytes));
}

void add_file(const fs::path& path, Hasher& hasher) {
  const std::string name = path.filename().string();
  const std::uint64_t size = fs::file_size(path);
  hasher.update(name.data(), name.size());
  hasher.update(&size, sizeof size);
  std::ifstream file(path, std::ios::binary);
  if (size <= kWholeBytes) {
    for (std::uint64_t at = 0; at < size; at += kPieceBytes) {
      add_piece(file, path, at, std::min<std::uint64_t>(kPieceBytes, size - at), hasher);
    }
    return;
  }
  const std::uint64_t last = size - kPieceBytes;
  for (std::uint64_t i = 0; i < kPlaces; ++i) {
    add_piece(file, path, last / (kPlaces - 1) * i, kPieceBytes, hasher);
  }
}

}  // namespace

std::string model_identity(const ModelPath& directory) {
  Hasher hasher;
  for (const fs::path& part : std::set<fs::path>{directory, base_directory(directory)}) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(part)) {
      const fs::path& path = entry.path();
      if (path.filename() == "config.json" || path.extension() == ".safetensors") {
        files.push_back(path);
      }
    }
    std::ranges::sort(files);
    for (const fs::path& path : files) add_file(path, hasher);
  }
  return to_hex(hasher.digest());
}

}  // namespace atl::model_dir
