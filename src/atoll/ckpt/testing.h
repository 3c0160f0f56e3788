#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "atoll/base/file.h"

namespace atl::ckpt::testing {

/// An empty directory for one test, removed with the object.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("atoll-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Where the fixtures of this folder lie.
inline std::filesystem::path testdata() {
  return std::filesystem::path(ATOLL_SOURCE_DIR) / "src/atoll/ckpt/testdata";
}

/// Changes one bit of a file.
inline void flip_bit(const std::filesystem::path& path, std::size_t byte, int bit) {
  std::string content = read_file(path);
  content.at(byte) = static_cast<char>(content.at(byte) ^ (1 << bit));
  write_file(path, content);
}

}  // namespace atl::ckpt::testing
