#pragma once

// What every fuzz target shares. A target feeds one parser with bytes from outside: the parser may
// take them or refuse them with an Error of one line; anything else is a finding.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::fuzz {

/// Calls fn(); an Error is a refusal. Aborts when its message is not one line that says something,
/// or when it is a bug's (ErrorKind::kInternal).
template <typename Fn>
void expect_result_or_refusal(Fn&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    const bool one_line = !message.empty() && message.find('\n') == message.npos;
    if (one_line && error.kind() != ErrorKind::kInternal) return;
    fmt::print(stderr, "a refusal must be one line that is no bug's: {}\n", message);
    std::abort();
  }
}

inline std::string_view text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::span<const std::byte> bytes(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

/// The bytes as a file, in memory, for parsers that map a path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : descriptor_(memfd_create("input", 0)) {
    if (descriptor_ < 0 || write(descriptor_, data, size) != static_cast<ssize_t>(size)) {
      std::abort();
    }
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

/// A directory of this process, removed when it ends well. `./dev fuzz` puts it in memory.
class Directory {
 public:
  Directory() {
    std::string pattern = std::filesystem::temp_directory_path() / "atoll-fuzz-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  /// Replaces a file, without write_file()'s syncs, of which there would be millions.
  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const std::filesystem::path path = path_ / name;
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 ||
        ::write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      std::abort();
    }
    close(file);
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace atl::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
