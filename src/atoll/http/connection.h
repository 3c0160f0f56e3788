#pragma once

// One connection of a server, without its socket: what came, what is to go, and what is due when.
// For the .cpp files here.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/http/outboxes.h"
#include "atoll/http/request_parser.h"
#include "atoll/http/server_options.h"

namespace atl::http {

/// The state of one connection. Calls say what happened; the server then looks at what follows.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  /// Where a connection is.
  enum class Phase : std::uint8_t {
    kReading,    ///< a request comes, or may come
    kAnswering,  ///< a request is with the handler
    kStreaming,  ///< an answer is under way in pieces
    kSending,    ///< an answer waits for its reader, and the next request for that
    kEnding,     ///< what is left is sent, then it closes
    kLingering,  ///< all is sent; the client may still send, which is dropped
    kGone,       ///< to be closed at once
  };

  Connection(std::uint64_t id, const ServerOptions& options, Clock::time_point now);

  std::uint64_t id() const { return id_; }
  Phase phase() const { return phase_; }
  std::uint64_t request_number() const { return request_number_; }
  const Request& request() { return parser_.request(); }

  /// Takes bytes of the client. True: request() is whole and is the handler's now.
  bool receive(std::string_view bytes, Clock::time_point now);
  /// The client sends no more.
  void hung_up();
  /// Nothing goes through any more.
  void broken() { phase_ = Phase::kGone; }
  /// Takes an answer, or a part of one. True: the next request is whole already.
  bool answer(Outgoing outgoing, Clock::time_point now);
  /// Ends with an answer that no request is needed for.
  void refuse(int status, std::string_view why);

  /// What is to be sent now.
  std::string_view unsent() const { return std::string_view(out_).substr(sent_); }
  void sent(std::size_t bytes, Clock::time_point now);
  /// To be asked when something was sent. True: request() is whole, was waiting for that, and is
  /// the handler's now.
  bool take_next(Clock::time_point now);
  /// False while the client has too many requests waiting here already.
  bool wants_input() const;
  /// When something is late: a request, an answer's reader; far away when nothing is due.
  Clock::time_point deadline() const { return deadline_; }
  /// The deadline has passed.
  void late();
  /// Since when nothing came or went.
  Clock::time_point silent_since() const { return active_; }
  /// Since when the client has taken nothing of what there is to be sent.
  Clock::time_point stalled_since() const { return taken_; }

 private:
  bool handle(RequestParser::State state, Clock::time_point now);
  void put(std::string_view plain);
  void begin_answer(const Response& response, BodyEnd end);
  bool finish_answer(Clock::time_point now);
  void set_deadline(Clock::time_point now);

  std::uint64_t id_;
  const ServerOptions& options_;
  RequestParser parser_;
  std::unique_ptr<TlsSession> tls_;
  Phase phase_ = Phase::kReading;
  std::uint64_t request_number_ = 0;
  bool keeps_alive_ = true;
  bool is_head_ = false;  // the request is HEAD
  BodyEnd body_end_ = BodyEnd::kLength;
  bool has_hung_up_ = false;
  std::string out_;
  std::size_t sent_ = 0;
  Clock::time_point request_began_{};
  Clock::time_point active_;
  Clock::time_point taken_;
  Clock::time_point deadline_;
};

}  // namespace atl::http
