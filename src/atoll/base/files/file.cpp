#include "atoll/base/files/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/git_lfs_pointer.h"
#include "atoll/base/files/read_file.h"
#include "atoll/base/files/unfinished.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kFlushBytes = std::size_t{4} << 20;
constexpr std::uint64_t kBeginBytes = std::uint64_t{16} << 20;

struct Fault {
  std::atomic<int> countdown{0};
  std::atomic<int> error_number{0};
  std::string part;
};
Fault faults[4];

}  // namespace

namespace io_fault {

void arm(Call call, int countdown, int error_number, std::string_view part) {
  Fault& fault = faults[static_cast<int>(call)];
  fault.countdown = 0;
  fault.error_number = error_number;
  fault.part = part;
  fault.countdown = countdown;
}

void disarm() {
  for (Fault& fault : faults) fault.countdown = 0;
}

bool fires(Call call, const fs::path& path) {
  Fault& fault = faults[static_cast<int>(call)];
  if (fault.countdown.load() == 0) return false;
  if (path.native().find(fault.part) == std::string::npos) return false;
  if (fault.countdown.fetch_sub(1) != 1) return false;
  errno = fault.error_number.load();
  return true;
}

}  // namespace io_fault

namespace {

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  buffer_.reserve(kFlushBytes);  // before the file is made: this can throw
  const std::string name = path_.filename().string();
  sweep_unfinished(directory_of(path_), [&](std::string_view other) { return other == name; });
  if (!io_fault::fires(io_fault::Call::kOpen, path_)) fd_ = open_unfinished(path_, temporary_);
  if (fd_ < 0) {
    if (errno == ENOENT) {
      throw user_error("cannot create {}: its directory {} does not exist", path_.string(),
                       path_.parent_path().string());
    }
    throw io_error("cannot create", path_, errno);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
}

void AtomicFile::write(const void* data, std::size_t size) {
  hasher_.update(data, size);
  bytes_ += size;
  if (buffer_.size() + size > kFlushBytes) flush();
  const std::string_view piece(static_cast<const char*>(data), size);
  if (size >= kFlushBytes) {
    write_through(piece);  // a tensor: buffering it would copy all of it
  } else {
    buffer_.append(piece);
  }
}

void AtomicFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicFile::write_through(std::string_view piece) {
  const std::uint64_t before = bytes_through_;
  while (!piece.empty()) {
    ssize_t n = -1;
    if (!io_fault::fires(io_fault::Call::kWrite, path_))
      n = ::write(fd_, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error_number = errno;
      throw io_error(fmt::format("after {} bytes, cannot write to", bytes_through_).c_str(), path_,
                     error_number);
    }
    bytes_through_ += static_cast<std::uint64_t>(n);
    piece.remove_prefix(static_cast<std::size_t>(n));
  }
  // The disk begins while the rest is still being made; what it has by then, fsync need not wait
  // for. A file system that cannot is told all of it by fsync.
  const std::uint64_t begin = before / kBeginBytes * kBeginBytes;
  if (bytes_through_ - begin < kBeginBytes) return;
  ::sync_file_range(fd_, static_cast<off_t>(begin), static_cast<off_t>(bytes_through_ - begin),
                    SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::commit() {
  flush();
  if (io_fault::fires(io_fault::Call::kSync, path_) || ::fsync(fd_) != 0) {
    throw io_error("cannot flush to disk", path_, errno);
  }
  // Closed after the rename: the descriptor keeps others from sweeping the file.
  if (io_fault::fires(io_fault::Call::kRename, path_) ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary_.c_str());
    ::close(std::exchange(fd_, -1));
    throw io_error("cannot put in place", path_, error_number);
  }
  ::close(std::exchange(fd_, -1));
  sync_directory(directory_of(path_));
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw io_error("cannot open directory", directory, errno);
  const bool failed = io_fault::fires(io_fault::Call::kSync, directory) || ::fsync(fd) != 0;
  const int error_number = errno;
  ::close(fd);
  // Some file systems (9p, FUSE) cannot fsync a directory and say EINVAL: nothing is lost by it.
  if (failed && error_number != EINVAL) {
    throw io_error("cannot flush directory", directory, error_number);
  }
}

MappedFile::MappedFile(const fs::path& path) {
  std::uint64_t bytes = 0;
  const int fd = open_regular_file(path, bytes);
  size_ = static_cast<std::size_t>(bytes);
  void* data = nullptr;
  if (size_ > 0) data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error_number = errno;
  ::close(fd);
  if (data == MAP_FAILED) throw io_error("cannot map", path, error_number);
  data_ = static_cast<const std::byte*>(data);
  try {
    refuse_git_lfs_pointer(path, {reinterpret_cast<const char*>(data_), size_});
  } catch (...) {
    ::munmap(data, size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace atl
