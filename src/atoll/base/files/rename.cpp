#include "atoll/base/files/rename.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "atoll/base/files/file.h"

namespace atl {

namespace {

Error rename_error(const std::filesystem::path& from, const std::filesystem::path& to,
                   int error_number) {
  return io_error(fmt::format("cannot rename {} to", from.string()).c_str(), to, error_number);
}

}  // namespace

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (io_fault::fires(io_fault::Call::kRename, to) || ::rename(from.c_str(), to.c_str()) != 0) {
    throw rename_error(from, to, errno);
  }
}

bool exchange_paths(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (!io_fault::fires(io_fault::Call::kRename, b) &&
      ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  if (errno == EINVAL || errno == ENOSYS) return false;
  throw rename_error(a, b, errno);
}

void sync_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw io_error("cannot open", path, errno);
  const bool failed = io_fault::fires(io_fault::Call::kSync, path) || ::fsync(fd) != 0;
  const int error_number = errno;
  ::close(fd);
  if (failed) throw io_error("cannot flush to disk", path, error_number);
}

}  // namespace atl
