#include "atoll/wire/secret_file.h"

#include <sys/stat.h>

#include <cerrno>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::wire {

std::string read_secret(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    throw user_error("{} may be read or changed by others (mode {:o}); run: chmod 600 {}",
                     path.string(), status.st_mode & 07777, path.string());
  }
  return read_file(path);
}

}  // namespace atl::wire
