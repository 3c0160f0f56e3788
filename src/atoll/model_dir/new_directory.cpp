#include "atoll/model_dir/new_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/unfinished.h"

namespace atl::model_dir {

namespace fs = std::filesystem;

namespace {

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Lies in a directory for as long as it is filled, locked by whoever fills it. It also tells such
// a directory from one of the user that has a like name.
constexpr const char* kMarker = ".unfinished";

// Removes `directory` if a process that was killed has left it.
void remove_abandoned(const fs::path& directory) {
  std::error_code ignored;  // it is only in the way of disk space
  const int marker = ::open((directory / kMarker).c_str(), O_WRONLY | O_CLOEXEC);
  if (marker < 0) {
    fs::remove(directory, ignored);  // killed before there was a marker: only if it is empty
    return;
  }
  if (is_abandoned(marker, directory / kMarker)) fs::remove_all(directory, ignored);
  ::close(marker);
}

void sweep_abandoned(const fs::path& path) {
  std::error_code ignored;  // making the directory says what is wrong
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(parent_of(path), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (finished_name(name) == path.filename().string()) found.push_back(entry->path());
  }
  for (const fs::path& directory : found) {
    if (fs::is_directory(fs::symlink_status(directory, ignored))) remove_abandoned(directory);
  }
}

}  // namespace

NewDirectory::NewDirectory(const fs::path& path, const std::string& option)
    : path_(path.lexically_normal()) {
  // "dir/" is "dir": the temporary directory must stand beside it, not in it.
  if (!path_.has_filename()) path_ = path_.parent_path();
  if (path_.empty() || path_ == ".") throw user_error("{} must name a directory to make", option);
  if (path_exists(path_)) {
    throw user_error("{} is there already; name a directory that is not, or remove it",
                     path.string());
  }
  std::error_code error;
  fs::create_directories(parent_of(path_), error);
  if (error) {
    throw user_error("cannot make the directory {}: {}", path.string(), error.message());
  }
  sweep_abandoned(path_);
  make_temporary();
}

void NewDirectory::make_temporary() {
  constexpr int kMaxNames = 1000;  // processes in containers can have the same number
  std::error_code error;
  for (int i = 0; i < kMaxNames && temporary_.empty() && !error; ++i) {
    fs::path name = path_;
    name += fmt::format(".tmp-{}{}", ::getpid(), i == 0 ? "" : fmt::format(".{}", i));
    if (!fs::create_directory(name, error)) continue;  // without an error, it is there already
    marker_ = ::open((name / kMarker).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (marker_ >= 0 && hold_unfinished(marker_)) {
      temporary_ = name;
    } else if (marker_ >= 0) {
      ::close(std::exchange(marker_, -1));  // somebody found it not held yet, and removed it
    } else if (errno != ENOENT) {           // else somebody found it empty, and removed it
      error.assign(errno, std::generic_category());
    }
  }
  if (!temporary_.empty()) return;
  throw user_error("cannot make the directory {}: {}", path_.string(),
                   error ? error.message() : "too many unfinished ones of this name are there");
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  if (marker_ >= 0) ::close(marker_);
}

void NewDirectory::commit() {
  std::error_code error;
  fs::remove(temporary_ / kMarker, error);
  if (!error) fs::rename(temporary_, path_, error);
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

}  // namespace atl::model_dir
