#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous_wire.h"
#include "atoll/comm/tcp/frame_stream.h"
#include "atoll/wire/secret.h"

namespace atl::param_server {

/// One connection over TCP, for the thread that polls it: messages as frames of the engine that the
/// ranks of an island use (comm/tcp/frame_stream.h), without a copy on the way out.
///
/// The first frame of both sides is a greeting (kCall) with a random number, and the second (kCall,
/// too) proves that the side knows the run's secret, by both numbers; where there is none it is
/// empty. Nothing else is taken before, so that a stranger is given no memory and a recording is
/// worth nothing. Messages are kBytes. A side that has nothing to say
/// sends an empty frame (kResult) every second, since a process that is stopped
/// keeps its connections; one that is silent for five is taken for gone. The last frame says why
/// (kGoodbye).
class TcpLink {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kAliveEvery{1000}, kSilence{5000};
  static constexpr std::string_view kGreeting = "atoll parameter server over tcp, 2 ";

  /// What a side proves itself with.
  struct Proof {
    const wire::Secret* secret = nullptr;  ///< must outlive the link; null: the run has none
    bool is_client = false;
    int port = 0;  ///< that the client calls
  };

  /// Queues the greeting.
  TcpLink(comm::rendezvous::Socket socket, Clock::time_point now, const Proof& proof);

  int fd() const { return stream_.fd(); }
  /// What poll() is to wait for.
  short wanted() const;

  /// Queues a message of at most kMaxFrame bytes.
  void push(std::string message);
  /// Queues the last frame; `why` is told to the other side.
  void end(const std::string& why);
  /// Whether everything that was queued is handed to the system.
  bool is_sent() const { return stream_.queued() == 0; }
  /// Bytes of messages that were handed to the system since the last call.
  std::size_t take_sent_bytes();

  /// Sends what the system takes and appends what has come whole. Throws Error(kPeer) when the
  /// connection is broken, silent for too long, or not proved within that time; Error(kDamaged) for
  /// bytes that are none of a parameter server's or its worker's, and for a wrong proof.
  void move(Clock::time_point now, std::vector<std::string>& messages);
  /// Whether the other side has greeted and proved itself: it is one of ours.
  bool is_greeted() const { return state_ == State::kOpen; }
  /// The reason of the other side, once it has ended.
  const std::optional<std::string>& goodbye() const { return goodbye_; }

 private:
  enum class State : std::uint8_t { kNew, kGreeted, kOpen };

  void take_greeting();
  void take_proof();
  std::string proof_of(bool is_client) const;
  void make_room(std::size_t bytes);
  void write();
  void read(Clock::time_point now, std::vector<std::string>& messages);
  void take_frames(std::vector<std::string>& messages);
  void check(const comm::tcp::Frame& frame) const;
  void finish(comm::tcp::MessageKind kind, std::vector<std::string>& messages);

  comm::tcp::FrameStream stream_;
  std::deque<std::string> outgoing_;  // frames in stream_, in order
  std::vector<comm::tcp::FrameStream::Sent> sent_;
  std::size_t sent_bytes_ = 0;
  std::string incoming_;
  std::byte nothing_{};  // where an empty frame goes
  const Proof proof_;
  const std::string nonce_;
  std::string other_nonce_;
  Clock::time_point began_;
  Clock::time_point heard_;
  Clock::time_point said_;
  State state_ = State::kNew;
  bool is_ending_ = false;
  std::optional<std::string> goodbye_;
};

}  // namespace atl::param_server
