#pragma once

// Files, with every failed system call turned into an Error that names path, bytes and reason.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/base/files/io_error.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/hash.h"

namespace atl {

/// A file that appears under its name whole or not at all: written beside it under a temporary
/// name, flushed, fsynced, renamed, and the directory fsynced. Without commit() nothing appears and
/// what stood there before stays. Throws Error(kIo) naming the path, the byte count and the reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; buffered, and hashed on the way.
  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::uint64_t bytes_written() const { return bytes_; }
  /// The hash of everything written so far.
  Hash128 digest() const { return hasher_.digest(); }
  /// Makes the file appear. Call once, last.
  void commit();

 private:
  void flush();
  void write_through(std::string_view piece);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_through_ = 0;  // given to the system
  std::string buffer_;
  Hasher hasher_;
};

/// AtomicFile in one call.
void write_file(const std::filesystem::path& path, std::string_view content);

/// fsyncs a directory, so that renames in it survive a power loss.
void sync_directory(const std::filesystem::path& directory);

/// A file mapped read-only for as long as the object lives. Same errors as read_file.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Test seam: makes the n-th following system call of a kind fail, as SQLite's tests do.
/// A global, because the calls to fail are deep inside code that must not know of tests.
namespace io_fault {
/// The system calls that can be made to fail.
enum class Call { kOpen, kWrite, kSync, kRename };
/// The `countdown`-th next `call` (1 = the very next) on a path that has `part` in it fails with
/// `error_number`, then disarms.
void arm(Call call, int countdown, int error_number, std::string_view part = {});
void disarm();
/// Asked by whoever is about to make a system call: true when it must fail instead, with errno set.
bool fires(Call call, const std::filesystem::path& path);
}  // namespace io_fault

}  // namespace atl
