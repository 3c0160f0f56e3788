#include "atoll/base/files/io_error.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "atoll/base/files/size_limit.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

std::string advice(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another directory";
    case EFBIG:
      return size_limit_advice();
    case EACCES:
    case EPERM:
    case EROFS:
      return "; choose a directory you may write to";
    case ELOOP:
      return "; a link leads back to itself: make it anew, or give the file it was meant for";
    case EISDIR:
    case ENOTDIR:
      return "; give the path of a file in an existing directory";
    default:
      return "";
  }
}

}  // namespace

Error io_error(const char* what, const fs::path& path, int error_number) {
  const bool users = error_number == EACCES || error_number == EPERM || error_number == EROFS ||
                     error_number == EISDIR || error_number == ENOTDIR || error_number == ELOOP ||
                     error_number == ENAMETOOLONG;
  return make_error(users ? ErrorKind::kUser : ErrorKind::kIo, "{} {}: {}{}", what, path.string(),
                    std::strerror(error_number), advice(error_number));
}

}  // namespace atl
