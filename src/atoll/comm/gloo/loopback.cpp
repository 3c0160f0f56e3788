#include "atoll/comm/gloo/loopback.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>

namespace atl::comm::gloo_net {

namespace {

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return a.ss_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

std::vector<int> open_descriptors() {
  std::vector<int> descriptors;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", problem)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0) descriptors.push_back(fd);
  }
  // Not the one through which the directory was read.
  std::erase_if(descriptors, [](int fd) { return ::fcntl(fd, F_GETFD) < 0; });
  std::sort(descriptors.begin(), descriptors.end());
  return descriptors;
}

void speed_up_loopback(const std::vector<int>& before) {
  for (const int fd : open_descriptors()) {
    if (std::binary_search(before.begin(), before.end(), fd)) continue;
    sockaddr_storage own{}, other{};
    socklen_t own_size = sizeof(own), other_size = sizeof(other);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) != 0 ||
        !same_host(own, other))
      continue;
    // Where the system does not have it, the default stays: slower, not wrong.
    constexpr char kReno[] = "reno";
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kReno, sizeof(kReno) - 1);
  }
}

}  // namespace atl::comm::gloo_net
