#include "atoll/base/files/unfinished.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMark = ".tmp-";
// Of one name and thread: others of other machines or containers may have the same number.
constexpr int kMaxNames = 1000;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char letter) { return letter >= '0' && letter <= '9'; });
}

}  // namespace

std::optional<std::string_view> finished_name(std::string_view name) {
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const std::string_view number = name.substr(mark + kMark.size());
  const std::size_t dot = number.find('.');
  const bool is_ours = is_number(number.substr(0, dot)) &&
                       (dot == std::string_view::npos || is_number(number.substr(dot + 1)));
  if (!is_ours) return std::nullopt;
  return name.substr(0, mark);
}

bool hold_unfinished(int fd) {
  while (::flock(fd, LOCK_EX) != 0) {
    if (errno != EINTR) return true;  // no locks here: nobody sweeps either
  }
  struct stat info {};
  return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

bool is_abandoned(int fd, const fs::path& path) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return false;
  }
  // The lock says something of the name only if the name still means this file: a writer may have
  // put the file in place meanwhile, and be at the next one of that name.
  struct stat held {};
  struct stat named {};
  return ::fstat(fd, &held) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino && S_ISREG(held.st_mode);
}

int open_unfinished(const fs::path& path, fs::path& temporary) {
  // Ranks may be threads of one process: the number of the process is not enough.
  const std::string number = std::to_string(::gettid());
  for (int i = 0; i < kMaxNames; ++i) {
    temporary = path;
    temporary += std::string(kMark) + number + (i == 0 ? "" : "." + std::to_string(i));
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST) return -1;
    if (fd < 0) continue;
    if (hold_unfinished(fd)) return fd;
    ::close(fd);
  }
  errno = EEXIST;
  return -1;
}

void sweep_unfinished(const fs::path& directory,
                      const std::function<bool(std::string_view)>& is_ours) {
  std::error_code ignored;  // who then writes there says what is wrong with the directory
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const std::optional<std::string_view> finished = finished_name(name);
    if (finished && is_ours(*finished)) found.push_back(entry->path());
  }
  for (const fs::path& path : found) {
    // For writing: NFS gives an exclusive lock to nobody else.
    const int fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (is_abandoned(fd, path)) ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace atl
