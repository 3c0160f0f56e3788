#include "atoll/param_server/connection.h"

#include "atoll/base/error.h"
#include "atoll/base/log.h"

namespace atl::param_server {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRetryEvery{50};

}  // namespace

WorkerConnection::WorkerConnection(Worker& worker, const std::string& scheduler,
                                   const LinkOptions& options, double timeout_seconds)
    : worker_(worker), timeout_seconds_(timeout_seconds), links_(mailbox_, scheduler, options) {}

void WorkerConnection::pump(std::chrono::milliseconds wait) {
  send();
  for (const Mailbox::Letter& letter : mailbox_.take(wait)) {
    if (links_.note(letter)) take(letter);
  }
  if (Clock::now() >= retry_at_) {
    worker_.retry();
    retry_at_ = Clock::now() + kRetryEvery;
  }
  for (const ServerId server : pauses_.due(Clock::now())) worker_.connected(server);
  send();
  check();
}

void WorkerConnection::send() {
  links_.follow(worker_.servers());
  for (Worker::Send& out : worker_.take_sends()) {
    if (out.to_scheduler) {
      links_.to_scheduler(out.message);
    } else {
      links_.to_server(out.server, out.message);
    }
  }
  links_.flush();
}

void WorkerConnection::take(const Mailbox::Letter& letter) {
  using Kind = Mailbox::Letter::Kind;
  if (letter.from != Mailbox::Letter::From::kScheduler) return take_from_server(letter);
  switch (letter.kind) {
    case Kind::kOpened:
      has_scheduler_ = true;
      return worker_.connected_to_scheduler();
    case Kind::kReceived:
      return worker_.received_from_scheduler(decode(letter.text));
    default:
      if (letter.is_final) throw user_error("{}", letter.text);
      if (has_scheduler_) away_since_ = Clock::now();
      has_scheduler_ = false;
      why_not_ = letter.text;
  }
}

void WorkerConnection::take_from_server(const Mailbox::Letter& letter) {
  using Kind = Mailbox::Letter::Kind;
  const auto server = static_cast<ServerId>(letter.id);
  switch (letter.kind) {
    case Kind::kOpened:
      if (pauses_.opened(server, Clock::now())) worker_.connected(server);
      break;
    case Kind::kReceived:
      pauses_.answered(server);
      worker_.received_from_server(server, decode(letter.text));
      break;
    default:
      if (letter.is_final) throw user_error("{}", letter.text);
      if (const int times = pauses_.closed(server); times > 1) {
        log::warning("a server has closed the connection {} times without an answer, now with: {}",
                     times, letter.text);
      }
  }
}

void WorkerConnection::check() {
  if (!worker_.refusal().empty()) throw user_error("{}", worker_.refusal());
  if (has_scheduler_ || worker_.ended()) return;
  const std::chrono::duration<double> away = Clock::now() - away_since_;
  if (away.count() < timeout_seconds_) return;
  throw make_error(
      ErrorKind::kPeer,
      "the scheduler of the parameter servers at {} is not there for {:.0f} s{}; start "
      "`atoll server` there, or give sync.addresses its address",
      links_.scheduler_address(), away.count(), why_not_.empty() ? "" : ": " + why_not_);
}

void WorkerConnection::finish() {
  send();
  links_.finish();
}

}  // namespace atl::param_server
