#include "atoll/base/files/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "atoll/base/error.h"

namespace atl {

namespace {

int open_directory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw user_error("cannot use {}: {}", directory.string(), std::strerror(errno));
  return fd;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::filesystem::path& directory, const char* remedy)
    : fd_(open_directory(directory)) {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error_number = errno;
  ::close(fd_);
  if (error_number == EWOULDBLOCK) {
    throw user_error("{} is in use by another process; {}", directory.string(), remedy);
  }
  throw make_error(ErrorKind::kIo, "cannot lock {}: {}", directory.string(),
                   std::strerror(error_number));
}

DirectoryLock::DirectoryLock(const std::filesystem::path& directory,
                             const std::function<void()>& waits)
    : fd_(open_directory(directory)) {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) waits();
  while (::flock(fd_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const int error_number = errno;
    ::close(fd_);
    throw make_error(ErrorKind::kIo, "cannot lock {}: {}", directory.string(),
                     std::strerror(error_number));
  }
}

DirectoryLock::~DirectoryLock() {
  ::close(fd_);
}

DirectoryHold::DirectoryHold(const std::filesystem::path& directory)
    : fd_(open_directory(directory)) {
  while (::flock(fd_, LOCK_SH) != 0 && errno == EINTR) continue;
}

DirectoryHold::~DirectoryHold() {
  ::close(fd_);
}

bool DirectoryHold::is(const std::filesystem::path& directory) const {
  struct stat mine {
  }, there{};
  return ::fstat(fd_, &mine) == 0 && ::stat(directory.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

}  // namespace atl
