#include "atoll/base/files/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "atoll/base/files/absent_path.h"
#include "atoll/base/files/git_lfs_pointer.h"
#include "atoll/base/files/io_error.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no regular file";
}

Error too_large(const fs::path& path, std::uint64_t bytes, std::uint64_t max_bytes) {
  return user_error(
      "{} has {} bytes or more, and atoll reads at most {} of such a file; is it the "
      "right one?",
      path.string(), bytes, max_bytes);
}

}  // namespace

int open_regular_file(const fs::path& path, std::uint64_t& bytes) {
  // Without O_NONBLOCK a pipe that nobody writes to would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) {
    throw user_error("there is no file {}{}", path.string(), advice_for_absent(path));
  }
  if (fd < 0) throw io_error("cannot open", path, errno);
  struct stat info {};
  int error_number = ::fstat(fd, &info) != 0 ? errno : 0;
  if (error_number == 0 && S_ISDIR(info.st_mode)) error_number = EISDIR;
  if (error_number == 0 && S_ISREG(info.st_mode)) {
    bytes = static_cast<std::uint64_t>(info.st_size);
    return fd;
  }
  ::close(fd);
  if (error_number != 0) throw io_error("cannot read", path, error_number);
  throw user_error(
      "{} is {}, and atoll reads it from a regular file only; give one (cat >FILE "
      "makes one of a pipe)",
      path.string(), kind_of(info.st_mode));
}

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  std::uint64_t stated = 0;
  const int fd = open_regular_file(path, stated);
  std::string content;
  const auto size = static_cast<std::size_t>(std::min(stated, max_bytes));
  // Read to the end rather than to the size that is stated: /proc files say they are empty.
  while (stated <= max_bytes && content.size() <= max_bytes) {
    const std::size_t done = content.size();
    // The byte after the last one says that it is the last one.
    const std::size_t piece = done <= size && size > 0 ? size - done + 1 : 65536;
    content.resize(done + piece);
    const ssize_t n = ::read(fd, content.data() + done, piece);
    const int error_number = errno;
    content.resize(done + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0 || (n < 0 && error_number == EINTR)) continue;
    ::close(fd);
    if (n < 0) throw io_error("cannot read", path, error_number);
    refuse_git_lfs_pointer(path, content);
    return content;
  }
  ::close(fd);
  throw too_large(path, std::max<std::uint64_t>(stated, content.size()), max_bytes);
}

std::string read_file(const fs::path& path) {
  return read_file(path, kMaxFileBytes);
}

}  // namespace atl
