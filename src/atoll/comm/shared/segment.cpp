#include "atoll/comm/shared/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/files/file.h"
#include "atoll/base/files/size_limit.h"
#include "atoll/base/hash.h"

namespace atl::comm::shared {

namespace {

constexpr std::uint64_t kMagic = 0x32776e69576c7461;  // "atlWinw2"
// Two such pieces stay in a core's L2 cache between the copy in and the copy out.
constexpr std::size_t kLargestPiece = std::size_t{128} << 10;
constexpr std::size_t kSmallestPiece = std::size_t{16} << 10;
// All queues of a host together; with many ranks the pieces get shorter.
constexpr std::size_t kAllQueues = std::size_t{64} << 20;

std::size_t piece_for(int num_ranks) {
  const auto queues = static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks);
  std::size_t piece = kLargestPiece;
  while (piece > kSmallestPiece && piece * Segment::kSlots * queues > kAllQueues) piece /= 2;
  return piece;
}

constexpr std::size_t round_up(std::size_t n) {
  return (n + 4095) / 4096 * 4096;
}

}  // namespace

struct Segment::Header {
  std::uint64_t magic = 0;
  std::uint64_t num_ranks = 0;
  SharedFailure failure;
};

Segment::Segment(int fd, int num_ranks)
    : fd_(fd), num_ranks_(num_ranks), piece_bytes_(piece_for(num_ranks)) {}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      num_ranks_(other.num_ranks_),
      piece_bytes_(other.piece_bytes_),
      base_(std::exchange(other.base_, nullptr)) {}

Segment::~Segment() {
  if (base_ != nullptr) ::munmap(base_, bytes());
  close_fd();
}

void Segment::close_fd() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::size_t Segment::queues_offset() const {
  return round_up(sizeof(Header) + static_cast<std::size_t>(num_ranks_) * sizeof(RankBlock));
}

std::size_t Segment::slots_offset() const {
  const auto n = static_cast<std::size_t>(num_ranks_);
  return round_up(queues_offset() + n * n * sizeof(SpscQueue));
}

std::size_t Segment::bytes() const {
  const auto n = static_cast<std::size_t>(num_ranks_);
  return slots_offset() + n * n * kSlots * round_up(sizeof(Slot) + piece_bytes_);
}

void Segment::map() {
  void* base = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED)
    throw make_error(ErrorKind::kResource, "cannot map {} bytes of memory shared by {} ranks: {}",
                     bytes(), num_ranks_, std::strerror(errno));
  base_ = static_cast<std::byte*>(base);
}

Segment Segment::create(int num_ranks) {
  const int fd = ::memfd_create("atoll-windows", MFD_CLOEXEC);
  if (fd < 0)
    throw make_error(ErrorKind::kResource, "cannot make memory for {} ranks to share: {}",
                     num_ranks, std::strerror(errno));
  Segment segment(fd, num_ranks);
  // Taken now, so that too little memory is an error here and not a signal later.
  if (const int problem = ::posix_fallocate(fd, 0, static_cast<off_t>(segment.bytes())))
    throw make_error(ErrorKind::kResource,
                     "cannot get {} bytes of memory for {} ranks to share: {}{}", segment.bytes(),
                     num_ranks, std::strerror(problem),
                     problem == EFBIG ? size_limit_advice() : "");
  segment.map();
  auto* header = new (segment.base_) Header;
  for (int r = 0; r < num_ranks; ++r) new (&segment.rank(r)) RankBlock;
  for (int from = 0; from < num_ranks; ++from)
    for (int to = 0; to < num_ranks; ++to) new (&segment.queue(from, to)) SpscQueue;
  header->num_ranks = static_cast<std::uint64_t>(num_ranks);
  header->magic = kMagic;
  return segment;
}

Segment Segment::open(int pid, int fd, int num_ranks) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) throw make_error(ErrorKind::kIo, "cannot open {}: {}", path, std::strerror(errno));
  Segment segment(own, num_ranks);
  struct stat info {};
  if (::fstat(own, &info) != 0 || static_cast<std::size_t>(info.st_size) != segment.bytes())
    throw damaged_error("{} is not the memory that the ranks of this host share", path);
  segment.map();
  const auto* header = reinterpret_cast<const Header*>(segment.base_);
  if (header->magic != kMagic || header->num_ranks != static_cast<std::uint64_t>(num_ranks))
    throw damaged_error("{} is not the memory that the ranks of this host share", path);
  return segment;
}

SharedFailure& Segment::failure() const {
  return reinterpret_cast<Header*>(base_)->failure;
}

RankBlock& Segment::rank(int local) const {
  return reinterpret_cast<RankBlock*>(base_ + sizeof(Header))[local];
}

SpscQueue& Segment::queue(int from, int to) const {
  return reinterpret_cast<SpscQueue*>(base_ + queues_offset())[from * num_ranks_ + to];
}

Slot& Segment::slot(int from, int to, std::uint64_t index) const {
  const auto queue = static_cast<std::size_t>(from) * static_cast<std::size_t>(num_ranks_) +
                     static_cast<std::size_t>(to);
  const std::size_t stride = round_up(sizeof(Slot) + piece_bytes_);
  return *reinterpret_cast<Slot*>(base_ + slots_offset() +
                                  (queue * kSlots + index % kSlots) * stride);
}

std::string host_id() {
  // The boot tells hosts apart; the namespaces tell containers of one host apart.
  std::string text = read_file("/proc/sys/kernel/random/boot_id");
  for (const char* name : {"pid", "user"}) {
    char link[64] = {};
    const std::string path = fmt::format("/proc/self/ns/{}", name);
    if (::readlink(path.c_str(), link, sizeof(link) - 1) < 0)
      text += fmt::format("{}", ::getpid());  // unknown: alone
    text += link;
  }
  text += fmt::format(" {}", ::geteuid());
  return to_hex(hash_bytes(text.data(), text.size()));
}

}  // namespace atl::comm::shared
