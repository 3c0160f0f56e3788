#include "atoll/http/connection.h"

#include <algorithm>
#include <utility>

namespace atl::http {

namespace {

constexpr std::chrono::seconds kLinger{2};
// Of its answers, while a client's next request is answered: who asks without reading holds no more
// than one answer here.
constexpr std::size_t kMostUnread = std::size_t{64} << 10;

}  // namespace

Connection::Connection(std::uint64_t id, const ServerOptions& options, Clock::time_point now)
    : id_(id),
      options_(options),
      parser_(options.limits),
      tls_(options.tls ? std::make_unique<TlsSession>(*options.tls) : nullptr),
      request_began_(now),
      active_(now),
      taken_(now) {
  deadline_ = now + options_.head_timeout;
}

void Connection::set_deadline(Clock::time_point now) {
  switch (phase_) {
    case Phase::kReading:
      if (!unsent().empty()) {
        deadline_ = now + options_.stall_timeout;
      } else {
        deadline_ = parser_.has_begun() ? request_began_ + options_.head_timeout
                                        : now + options_.idle_timeout;
      }
      break;
    case Phase::kAnswering:
    case Phase::kStreaming:
      deadline_ = unsent().empty() ? Clock::time_point::max() : now + options_.stall_timeout;
      break;
    case Phase::kSending:
    case Phase::kEnding:
      deadline_ = now + options_.stall_timeout;
      break;
    case Phase::kLingering:
      deadline_ = now + kLinger;
      break;
    case Phase::kGone:
      break;
  }
}

// To the client, through TLS if there is any.
void Connection::put(std::string_view plain) {
  if (!tls_) {
    out_ += plain;
    return;
  }
  if (!plain.empty() && (!tls_->is_ready() || !tls_->send(plain))) phase_ = Phase::kGone;
  out_ += tls_->take();
}

bool Connection::wants_input() const {
  if (phase_ == Phase::kGone || has_hung_up_) return false;
  return parser_.kept_bytes() <= options_.limits.head_bytes + options_.limits.body_bytes;
}

bool Connection::receive(std::string_view bytes, Clock::time_point now) {
  active_ = now;
  if (phase_ == Phase::kEnding || phase_ == Phase::kLingering || phase_ == Phase::kGone) {
    return false;
  }
  const bool had_begun = parser_.has_begun();
  std::string plain;
  if (tls_) {
    const bool goes_on = tls_->receive(bytes, plain);
    put("");
    if (!goes_on && plain.empty()) {
      phase_ = unsent().empty() ? Phase::kGone : Phase::kEnding;  // an alert is to be sent
      set_deadline(now);
      return false;
    }
    bytes = plain;
  }
  if (!had_begun && !bytes.empty()) request_began_ = now;
  return handle(parser_.feed(bytes), now);
}

bool Connection::handle(RequestParser::State state, Clock::time_point now) {
  // While an answer is under way the parser keeps what comes for later.
  if (phase_ != Phase::kReading) return false;
  if (state == RequestParser::State::kRefused) {
    refuse(parser_.refusal().status, parser_.refusal().why);
  } else if (state == RequestParser::State::kWhole) {
    phase_ = Phase::kAnswering;
    ++request_number_;
    is_head_ = request().method == "HEAD";
    keeps_alive_ = request().keeps_alive;
  } else if (parser_.take_expectation()) {
    put("HTTP/1.1 100 Continue\r\n\r\n");
  }
  set_deadline(now);
  return phase_ == Phase::kAnswering;
}

void Connection::refuse(int status, std::string_view why) {
  if (phase_ == Phase::kGone) return;
  if (tls_ && !tls_->is_ready()) {
    phase_ = Phase::kGone;
    return;
  }
  const Response response = options_.refusal(status, why);
  put(head_of(response, BodyEnd::kLength, /*keeps_alive=*/false) + response.body);
  if (phase_ != Phase::kGone) phase_ = Phase::kEnding;
  deadline_ = active_ + options_.stall_timeout;
}

void Connection::hung_up() {
  has_hung_up_ = true;
  // One that still has an answer to read has only closed its side; a stream has no reader.
  const bool waits =
      phase_ == Phase::kReading || phase_ == Phase::kSending || phase_ == Phase::kEnding;
  if (!waits || unsent().empty()) {
    phase_ = Phase::kGone;
  } else {
    phase_ = Phase::kEnding;
  }
}

void Connection::begin_answer(const Response& response, BodyEnd end) {
  body_end_ = end;
  if (end == BodyEnd::kClose) keeps_alive_ = false;
  put(head_of(response, end, keeps_alive_));
}

bool Connection::finish_answer(Clock::time_point now) {
  if (phase_ == Phase::kGone) return false;
  if (!keeps_alive_) {
    phase_ = Phase::kEnding;
    set_deadline(now);
    return false;
  }
  phase_ = Phase::kSending;
  if (take_next(now)) return true;
  set_deadline(now);
  return false;
}

bool Connection::take_next(Clock::time_point now) {
  if (phase_ != Phase::kSending || unsent().size() > kMostUnread) return false;
  phase_ = Phase::kReading;
  request_began_ = now;
  return handle(parser_.next(), now);
}

bool Connection::answer(Outgoing outgoing, Clock::time_point now) {
  const bool is_first = phase_ == Phase::kAnswering;
  if (outgoing.request != request_number_ || (!is_first && phase_ != Phase::kStreaming)) {
    return false;
  }
  active_ = now;
  if (unsent().empty()) taken_ = now;
  switch (outgoing.kind) {
    case Outgoing::Kind::kWhole:
      if (!is_first) return false;
      begin_answer(outgoing.response, BodyEnd::kLength);
      if (!is_head_) put(outgoing.response.body);
      return finish_answer(now);
    case Outgoing::Kind::kBegin:
      if (!is_first) return false;
      begin_answer(outgoing.response,
                   request().minor_version >= 1 ? BodyEnd::kChunks : BodyEnd::kClose);
      if (phase_ != Phase::kGone) phase_ = Phase::kStreaming;
      break;
    case Outgoing::Kind::kPiece:
      if (is_first) return false;
      if (!is_head_) {
        put(body_end_ == BodyEnd::kChunks ? chunk_of(outgoing.piece) : outgoing.piece);
      }
      break;
    case Outgoing::Kind::kEnd:
      if (is_first) return false;
      if (body_end_ == BodyEnd::kChunks && !is_head_) put("0\r\n\r\n");
      return finish_answer(now);
  }
  if (deadline_ == Clock::time_point::max()) set_deadline(now);
  return false;
}

void Connection::sent(std::size_t bytes, Clock::time_point now) {
  sent_ += bytes;
  if (bytes > 0) active_ = taken_ = now;
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
    // What a large answer took is given back.
    if (out_.capacity() > (64 << 10)) out_.shrink_to_fit();
    if (phase_ == Phase::kEnding) phase_ = has_hung_up_ ? Phase::kGone : Phase::kLingering;
  } else if (sent_ > (256 << 10)) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  if (bytes > 0) set_deadline(now);
}

void Connection::late() {
  const bool is_in_request = phase_ == Phase::kReading && unsent().empty() && parser_.has_begun();
  if (is_in_request) {
    refuse(408, "the request took too long");
  } else {
    phase_ = Phase::kGone;
  }
}

}  // namespace atl::http
