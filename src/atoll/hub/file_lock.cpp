#include "atoll/hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "atoll/base/files/io_error.h"

namespace atl::hub {

namespace {

// False where the file system has no locks.
bool lock(int fd, int how) {
  while (::flock(fd, how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

// A program may remove a lock file while it gives it back: then this is another one's by now.
bool is_at(int fd, const std::filesystem::path& path) {
  struct stat held {};
  struct stat there {};
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waits) {
  for (;;) {
    // Others of a shared cache may be of the same group.
    fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664));
    if (!fd_.open()) throw io_error("cannot make the lock", path, errno);
    if (!lock(fd_.get(), LOCK_EX | LOCK_NB)) {
      if (errno != EWOULDBLOCK) return;
      waits();
      if (!lock(fd_.get(), LOCK_EX)) return;
    }
    if (is_at(fd_.get(), path)) break;
  }
  holds_ = true;
}

}  // namespace atl::hub
