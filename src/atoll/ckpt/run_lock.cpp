#include "atoll/ckpt/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::ckpt {

namespace {

std::string this_process() {
  char host[256] = "?";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}\n", ::getpid(), host);
}

std::string holder(int fd) {
  char text[320];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  std::string name(text, static_cast<std::size_t>(n > 0 ? n : 0));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return name.empty() ? "another process" : name;  // it has the lock and has not yet signed
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    if (errno == ENOENT) throw user_error("there is no run directory {}", run.string());
    throw io_error("cannot open", path, errno);
  }
  try {
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) throw io_error("cannot lock", path, errno);
      throw user_error(
          "{} is in use by {}; wait until it is done, stop it, or give this run another directory",
          run.string(), holder(fd_));
    }
    const std::string name = this_process();
    if (::ftruncate(fd_, 0) != 0 ||
        ::pwrite(fd_, name.data(), name.size(), 0) != static_cast<ssize_t>(name.size())) {
      throw io_error("cannot write to", path, errno);
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

RunLock::~RunLock() {
  ::close(fd_);
}

}  // namespace atl::ckpt
