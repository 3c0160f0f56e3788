#pragma once

// What client and server of a rendezvous say to each other, and their sockets.

#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/comm/rendezvous/deadline.h"
#include "atoll/comm/rendezvous/rendezvous.h"

namespace atl::comm::rendezvous {

/// Both sides say this first, and hear it.
inline constexpr std::string_view kHello = "atl-rdv1";
/// Then frames: a length of four bytes, little-endian, and as many bytes. A request: one byte of
/// Verb, two of the key's length, the key, the value. A reply: one byte of Answer, and the value.
inline constexpr std::size_t kLongestFrame =
    3 + Rendezvous::kLongestKey + Rendezvous::kLongestValue;

/// What a client asks for.
enum class Verb : std::uint8_t { kSet = 1, kGet = 2, kRemove = 3 };
/// What the server says to it: kFull refuses a kSet.
enum class Answer : std::uint8_t { kNothing = 0, kFound = 1, kFull = 2 };

/// Sole owner of a socket.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A HOST:PORT that was taken apart.
struct RendezvousAddress {
  std::string host;
  int port = 0;
};
/// Throws Error(kUser) naming `address`.
RendezvousAddress parse_tcp(const std::string& address);

/// A socket that listens. Throws Error(kUser) naming host, port and reason.
Socket listen_on(const std::string& host, int port);
/// Tries until `deadline`. Throws Error(kUser) naming the address and the reason.
Socket connect_to(const RendezvousAddress& address, Clock::time_point deadline);
int port_of(const Socket& socket);
/// The numeric address of this end.
std::string local_address_of(const Socket& socket);

/// Sends or receives all of it. Throws Error(kPeer) naming `who` when the other side closes, fails,
/// or has not moved it by `deadline`.
void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline,
              const std::string& who);
std::string receive_all(const Socket& socket, std::size_t bytes, Clock::time_point deadline,
                        const std::string& who);

/// Little-endian, as on the wire.
std::string frame_of(std::string_view payload);
std::uint32_t read_length(std::string_view four);

}  // namespace atl::comm::rendezvous
