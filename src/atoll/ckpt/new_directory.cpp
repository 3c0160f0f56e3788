#include "atoll/ckpt/new_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include "atoll/base/error.h"
#include "atoll/base/file.h"

namespace atl::ckpt {

namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

NewDirectory::NewDirectory(const fs::path& path, const std::string& option)
    : path_(path.lexically_normal()) {
  // "dir/" is "dir": the temporary directory must stand beside it, not in it.
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (path_.empty() || path_ == ".") throw user_error("{} must name a directory to make", option);
  if (fs::exists(path_)) {
    throw user_error("{} is there already; name a directory that is not, or remove it",
                     path.string());
  }
  std::error_code error;
  fs::create_directories(parent_of(path_), error);
  temporary_ = path_;
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  if (!error) fs::create_directory(temporary_, error);
  if (error) {
    throw user_error("cannot make the directory {}: {}", path.string(), error.message());
  }
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewDirectory::commit() {
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) throw io_error("cannot rename to", path_, error.value());
  temporary_.clear();
  sync_directory(parent_of(path_));
}

void copy_durably(const fs::path& from, const fs::path& to) {
  const MappedFile source(from);
  AtomicFile file(to);
  file.write(source.bytes().data(), source.bytes().size());
  file.commit();
}

}  // namespace atl::ckpt
