#include "atoll/data/shard_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/files/unfinished.h"

namespace atl::data {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kKeyBytes = 96;  // the header of a shard: it holds a hash of all the rest

// flock(2), begun again after a signal. False when another holds the lock and `how` has LOCK_NB.
bool lock_file(int fd, int how, const fs::path& path) {
  while (::flock(fd, how) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    throw io_error("cannot lock", path, errno);
  }
  return true;
}

int open_file(const fs::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw io_error("cannot open", path, errno);
  return fd;
}

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  ~Descriptor() { ::close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int fd;
};

// Waits until no other process changes the cache. Not DirectoryLock, which does not wait.
class CacheLock {
 public:
  explicit CacheLock(const fs::path& directory)
      : directory_(open_file(directory, O_RDONLY | O_DIRECTORY)) {
    lock_file(directory_.fd, LOCK_EX, directory);
  }

 private:
  Descriptor directory_;
};

struct Copy {
  fs::file_time_type used;
  fs::path path;
  std::uint64_t bytes = 0;
};

// The copies, longest unused first.
std::vector<Copy> list_copies(const fs::path& directory) {
  std::vector<Copy> copies;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".atsh" || !entry.is_regular_file()) continue;
    copies.push_back({entry.last_write_time(), entry.path(), entry.file_size()});
  }
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
    return a.used != b.used ? a.used < b.used : a.path < b.path;
  });
  return copies;
}

std::uint64_t total_bytes(const std::vector<Copy>& copies) {
  std::uint64_t total = 0;
  for (const Copy& copy : copies) total += copy.bytes;
  return total;
}

bool in_use(const fs::path& path) {
  const Descriptor file(open_file(path, O_RDONLY));
  return !lock_file(file.fd, LOCK_EX | LOCK_NB, path);
}

// By content, so that two corpora share what they share and a changed file is another copy.
std::string copy_name(const fs::path& source) {
  const MappedFile file(source);
  const auto header = file.bytes().first(std::min(file.bytes().size(), kKeyBytes));
  if (header.empty()) throw io_error("cannot read", source, EIO);
  return to_hex(hash_bytes(header.data(), header.size())) + ".atsh";
}

// Nothing when there is no copy, or not a good one.
std::optional<CachedShard> open_copy(const fs::path& path) {
  if (!path_exists(path)) return std::nullopt;
  try {
    ShardPin pin(path);
    return CachedShard{std::move(pin), Shard(path)};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDamaged && error.kind() != ErrorKind::kUser) throw;
    return std::nullopt;
  }
}

}  // namespace

ShardPin::ShardPin(const fs::path& file) : fd_(open_file(file, O_RDONLY)) {
  try {
    lock_file(fd_, LOCK_SH, file);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ShardPin::~ShardPin() {
  if (fd_ >= 0) ::close(fd_);
}

ShardPin::ShardPin(ShardPin&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ShardPin& ShardPin::operator=(ShardPin&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ShardCache::ShardCache(fs::path directory, std::uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {
  std::error_code problem;
  fs::create_directories(directory_, problem);
  if (problem) {
    throw user_error("cannot make the cache {}: {}; choose a directory you may write to",
                     directory_.string(), problem.message());
  }
}

CachedShard ShardCache::open(const fs::path& source) const {
  const fs::path path = directory_ / copy_name(source);
  const CacheLock lock(directory_);
  std::optional<CachedShard> copy = open_copy(path);
  if (!copy) {
    std::error_code ignored;  // a damaged one that cannot be removed will be replaced
    fs::remove(path, ignored);
    sweep_unfinished(directory_, [](std::string_view name) { return name.ends_with(".atsh"); });
    this->copy(source, path);
    copy = open_copy(path);
    if (!copy) {
      fs::remove(path, ignored);
      { const Shard damaged(source); }  // throws, naming the original
      throw damaged_error("{} is damaged though {} is not; look at that disk", path.string(),
                          source.string());
    }
  }
  std::error_code not_touched;  // then it only seems unused for longer than it is
  fs::last_write_time(path, fs::file_time_type::clock::now(), not_touched);
  return std::move(*copy);
}

void ShardCache::copy(const fs::path& source, const fs::path& to) const {
  const MappedFile file(source);
  make_room(file.bytes().size(), source);
  AtomicFile copy(to);
  copy.write(file.bytes().data(), file.bytes().size());
  copy.commit();
}

void ShardCache::make_room(std::uint64_t bytes, const fs::path& source) const {
  if (bytes > limit_bytes_) {
    throw user_error("{} has {} bytes and the cache {} may hold {}; raise its limit",
                     source.string(), bytes, directory_.string(), limit_bytes_);
  }
  const std::vector<Copy> copies = list_copies(directory_);
  std::uint64_t total = total_bytes(copies);
  for (const Copy& copy : copies) {
    if (total <= limit_bytes_ - bytes) return;
    if (in_use(copy.path)) continue;
    fs::remove(copy.path);
    total -= copy.bytes;
  }
  if (total <= limit_bytes_ - bytes) return;
  throw user_error(
      "the cache {} may hold {} bytes; shards in use take {} of them and {} needs {} more; raise "
      "its limit, or read without a cache",
      directory_.string(), limit_bytes_, total, source.string(), bytes);
}

std::uint64_t ShardCache::bytes() const {
  const CacheLock lock(directory_);
  return total_bytes(list_copies(directory_));
}

}  // namespace atl::data
