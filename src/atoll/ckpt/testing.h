#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "atoll/base/files/file.h"
#include "atoll/base/files/test_paths.h"

namespace atl::ckpt::testing {

/// A directory in memory, where the system has one: for tests that write so many files that
/// flushing them to a disk would take most of their time.
inline std::filesystem::path memory_directory_path() {
  const std::filesystem::path shm = "/dev/shm";
  return ::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path();
}

/// An empty directory for one test, removed with the object.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& name, const std::filesystem::path& parent =
                                                           std::filesystem::temp_directory_path())
      : path_(parent / ("atoll-" + name + "-" + std::to_string(::getpid()))) {
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
  return test_source_dir() / "src/atoll/ckpt/testdata";
}

/// Changes one bit of a file.
inline void flip_bit(const std::filesystem::path& path, std::size_t byte, int bit) {
  std::string content = read_file(path);
  content.at(byte) = static_cast<char>(content.at(byte) ^ (1 << bit));
  write_file(path, content);
}

}  // namespace atl::ckpt::testing
