#include "atoll/tune/lease/file_list.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"

namespace atl::tune {

namespace fs = std::filesystem;

namespace {

std::string hash_of(const fs::path& path, std::uint64_t bytes) {
  if (bytes == 0) return to_hex(hash_bytes(nullptr, 0));
  const MappedFile file(path);
  return to_hex(hash_bytes(file.bytes().data(), file.bytes().size()));
}

}  // namespace

std::vector<fs::directory_entry> entries_below(const fs::path& root) {
  std::vector<fs::directory_entry> entries;
  if (!directory_exists(root)) return entries;
  std::error_code failure;
  for (fs::recursive_directory_iterator at(root, failure), end; !failure && at != end;
       at.increment(failure)) {
    entries.push_back(*at);
  }
  if (failure) throw io_error("cannot list", root, failure.value());
  return entries;
}

std::vector<FileEntry> list_files(const fs::path& root,
                                  const std::function<bool(std::string_view path)>& takes) {
  std::vector<FileEntry> files;
  std::error_code ignored;  // a file may be removed meanwhile
  for (const fs::directory_entry& entry : entries_below(root)) {
    if (!entry.is_regular_file(ignored)) continue;
    const std::string path = entry.path().lexically_relative(root).generic_string();
    if (!takes(path)) continue;
    files.push_back(entry_of(root, path));
  }
  std::sort(files.begin(), files.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.path < b.path; });
  return files;
}

FileEntry entry_of(const fs::path& root, const std::string& path) {
  std::error_code failure;
  const std::uint64_t bytes = fs::file_size(root / path, failure);
  if (failure) throw io_error("cannot read", root / path, failure.value());
  return {.path = path, .bytes = bytes, .hash = hash_of(root / path, bytes)};
}

void check_path(const std::string& path) {
  constexpr std::size_t kMaxPath = 1024;
  const fs::path parts = path;
  const bool is_plain = !path.empty() && path.size() <= kMaxPath &&
                        path.find('\0') == std::string::npos && parts.is_relative() &&
                        parts.has_filename() && path == parts.lexically_normal().generic_string() &&
                        *parts.begin() != "..";
  if (!is_plain) throw damaged_error("\"{}\" is no path below a directory", path);
}

bool has_file(const fs::path& root, const FileEntry& file) {
  const fs::path path = root / file.path;
  return file_exists(path) && fs::file_size(path) == file.bytes &&
         hash_of(path, file.bytes) == file.hash;
}

FileInPieces::FileInPieces(const fs::path& path, std::uint64_t bytes) : path_(path) {
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  if (failure) throw io_error("cannot make", path.parent_path(), failure.value());
  fd_ = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (fd_ < 0) throw io_error("cannot make", path, errno);
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) == 0) return;
  const int error = errno;
  ::close(fd_);
  throw io_error("cannot make", path, error);
}

FileInPieces::~FileInPieces() {
  ::close(fd_);
}

void FileInPieces::write(std::uint64_t offset, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t done = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw io_error("cannot write", path_, errno);
    data = data.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

void FileInPieces::sync() const {
  if (::fsync(fd_) != 0) throw io_error("cannot write", path_, errno);
}

}  // namespace atl::tune
