#include "atoll/base/files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "atoll/base/files/file.h"

namespace atl {

AppendFile::AppendFile(const std::filesystem::path& path) : path_(path) {
  if (!io_fault::fires(io_fault::Call::kOpen, path_)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
  if (fd_ < 0) throw io_error("cannot open for appending", path_, errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    const int error_number = errno;
    ::close(fd_);
    throw io_error("cannot read", path_, error_number);
  }
  bytes_ = static_cast<std::uint64_t>(info.st_size);
}

AppendFile::~AppendFile() {
  ::close(fd_);
}

void AppendFile::append(std::string_view piece) {
  const std::uint64_t end = bytes_ + piece.size();
  while (!piece.empty()) {
    ssize_t n = -1;
    if (!io_fault::fires(io_fault::Call::kWrite, path_))
      n = ::write(fd_, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error_number = errno;
      // When even this fails, whoever opens the file next finds the torn record and repairs it.
      [[maybe_unused]] const int ignored = ::ftruncate(fd_, static_cast<off_t>(bytes_));
      throw io_error("cannot append to", path_, error_number);
    }
    piece.remove_prefix(static_cast<std::size_t>(n));
  }
  bytes_ = end;
}

void AppendFile::sync() {
  if (io_fault::fires(io_fault::Call::kSync, path_) || ::fsync(fd_) != 0) {
    throw io_error("cannot flush to disk", path_, errno);
  }
}

}  // namespace atl
