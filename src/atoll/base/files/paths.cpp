#include "atoll/base/files/paths.h"

#include "atoll/base/files/file.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none) throw io_error("cannot look at", path, error.value());
  return type;
}

}  // namespace

bool path_exists(const fs::path& path) {
  return type_of(path) != fs::file_type::not_found;
}

bool directory_exists(const fs::path& path) {
  return type_of(path) == fs::file_type::directory;
}

bool file_exists(const fs::path& path) {
  return type_of(path) == fs::file_type::regular;
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    // Of a pipe, such as /dev/stdin or a shell's <(...), there is no path beside the one given.
    if (path_exists(path)) {
      throw user_error(
          "{} is a pipe, and atoll reads it from a regular file only; give one (cat >FILE "
          "makes one of a pipe)",
          path.string());
    }
    throw user_error("there is no file or directory {}", path.string());
  }
  if (error) throw io_error("cannot look at", path, error.value());
  return real;
}

}  // namespace atl
