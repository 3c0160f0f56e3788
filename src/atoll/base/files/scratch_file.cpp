#include "atoll/base/files/scratch_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "atoll/base/check.h"
#include "atoll/base/files/file.h"
#include "atoll/base/quantity.h"

namespace atl {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kFilePage - 1) / kFilePage * kFilePage;
}

// The largest file that this process may write. A larger one would end it with a signal.
std::uint64_t largest_file() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

Error no_room(const fs::path& directory, std::uint64_t bytes, const std::string& reason) {
  return make_error(ErrorKind::kIo,
                    "a scratch file of {} does not fit into {}: {}; free some space, or choose a "
                    "directory on another disk",
                    format_bytes(bytes), directory.string(), reason);
}

}  // namespace

ScratchFile::ScratchFile(const fs::path& directory, std::uint64_t bytes)
    : directory_(directory), bytes_(std::max<std::uint64_t>(round_up(bytes), kFilePage)) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw io_error("cannot make the directory", directory, error.value());
  try {
    open();
    reserve();
    void* data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, cached_, 0);
    if (data == MAP_FAILED) throw io_error("cannot map a scratch file in", directory_, errno);
    mapped_ = static_cast<std::byte*>(data);
  } catch (...) {
    if (direct_ >= 0) ::close(direct_);
    if (cached_ >= 0) ::close(cached_);
    throw;
  }
}

ScratchFile::~ScratchFile() {
  ::munmap(mapped_, bytes_);
  if (direct_ >= 0) ::close(direct_);
  ::close(cached_);
}

void ScratchFile::open() {
  static std::atomic<int> number = 0;
  fs::path name;
  do {  // processes of other machines may have a file of this name here
    name = directory_ / fmt::format("scratch-{}-{}", ::getpid(), number.fetch_add(1) + 1);
    if (io_fault::fires(io_fault::Call::kOpen, name)) break;
    cached_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (cached_ < 0 && errno == EEXIST);
  if (cached_ < 0) throw io_error("cannot make a scratch file in", directory_, errno);
  direct_ = ::open(name.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  ::unlink(name.c_str());  // no end of this process leaves it behind
}

void ScratchFile::reserve() const {
  if (bytes_ > largest_file()) {
    throw no_room(directory_, bytes_,
                  fmt::format("this process may write files of {} (ulimit -f)",
                              format_bytes(largest_file())));
  }
  int error = 0;
  do {
    error = ::posix_fallocate(cached_, 0, static_cast<off_t>(bytes_));
  } while (error == EINTR);
  if (error == 0) return;
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    throw io_error("cannot take room for a scratch file in", directory_, error);
  }
  std::error_code ignored;
  const fs::space_info space = fs::space(directory_, ignored);
  throw no_room(directory_, bytes_,
                ignored ? std::generic_category().message(error)
                        : fmt::format("{}, {} are free", std::generic_category().message(error),
                                      format_bytes(space.available)));
}

void ScratchFile::give_back(std::uint64_t offset, std::uint64_t size) const {
  const std::uint64_t first = offset / kFilePage * kFilePage;
  const std::uint64_t last = std::min(round_up(offset + size), bytes_);
  // Advice, both: nothing is lost where the system does not take it.
  ::madvise(mapped_ + first, last - first, MADV_DONTNEED);
  ::sync_file_range(cached_, static_cast<off_t>(first), static_cast<off_t>(last - first),
                    SYNC_FILE_RANGE_WRITE);
}

// Whole pages of the file past the page cache, what is left before and behind them through it. A
// page that two neighbours share is through it for both.
template <typename Bytes, typename Move>
void ScratchFile::in_parts(std::uint64_t offset, Bytes bytes, Move&& move) const {
  const std::uint64_t end = offset + bytes.size();
  ATOLL_CHECK(end <= bytes_, "bytes {} to {} of {}", offset, end, bytes_);
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uint64_t first = round_up(offset);
  const std::uint64_t last = end / kFilePage * kFilePage;
  if (direct_ < 0 || first >= last || address % kFilePage != offset % kFilePage) {
    return move(cached_, offset, bytes);
  }
  if (first > offset) move(cached_, offset, bytes.first(first - offset));
  move(direct_, first, bytes.subspan(first - offset, last - first));
  if (end > last) move(cached_, last, bytes.subspan(last - offset));
}

void ScratchFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  in_parts(offset, to, [this](int file, std::uint64_t at, std::span<std::byte> part) {
    while (!part.empty()) {
      const ssize_t n = ::pread(file, part.data(), part.size(), static_cast<off_t>(at));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        throw io_error(
            fmt::format("cannot read {} bytes at {} of the scratch file in", part.size(), at)
                .c_str(),
            directory_, errno);
      }
      if (n == 0) {
        throw make_error(ErrorKind::kIo,
                         "the scratch file in {} ends at byte {}, {} too early: another program "
                         "changed it; start again, the run goes on from its last checkpoint",
                         directory_.string(), at, counted(std::ssize(part), "byte"));
      }
      at += static_cast<std::uint64_t>(n);
      part = part.subspan(static_cast<std::size_t>(n));
    }
  });
}

void ScratchFile::write(std::uint64_t offset, std::span<const std::byte> from) const {
  in_parts(offset, from, [this](int file, std::uint64_t at, std::span<const std::byte> part) {
    while (!part.empty()) {
      ssize_t n = -1;
      if (!io_fault::fires(io_fault::Call::kWrite, directory_)) {
        n = ::pwrite(file, part.data(), part.size(), static_cast<off_t>(at));
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        throw io_error(
            fmt::format("cannot write {} bytes at {} of the scratch file in", part.size(), at)
                .c_str(),
            directory_, errno);
      }
      at += static_cast<std::uint64_t>(n);
      part = part.subspan(static_cast<std::size_t>(n));
    }
  });
}

}  // namespace atl
