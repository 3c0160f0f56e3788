#include "atoll/island/ledger/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"

namespace atl::island {

namespace fs = std::filesystem;

namespace {

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

// What the holder wrote: one short line.
std::string read_owner(int fd) {
  std::array<char, 300> text = {};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string owner(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return owner.empty() ? "another process" : owner;
}

}  // namespace

LedgerLock::LedgerLock(const fs::path& ledger) {
  const fs::path path = ledger.string() + ".lock";
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0 && errno == ENOENT) {
    throw user_error("cannot make ledger {}: its directory does not exist", ledger.string());
  }
  if (fd_ < 0) throw io_error("cannot open", path, errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    const std::string owner = read_owner(fd_);
    ::close(fd_);
    if (error_number == EWOULDBLOCK) {
      throw user_error("ledger {} is in use by a coordinator: {}; stop that one first",
                       ledger.string(), owner);
    }
    throw io_error("cannot lock", path, error_number);
  }
  // Only for the message above: that it cannot be written on a full disk keeps nobody from
  // starting.
  const std::string owner = fmt::format("process {} on {}", ::getpid(), host_name());
  if (::ftruncate(fd_, 0) == 0) {
    [[maybe_unused]] const ssize_t ignored = ::pwrite(fd_, owner.data(), owner.size(), 0);
  }
}

LedgerLock::~LedgerLock() {
  ::close(fd_);
}

}  // namespace atl::island
