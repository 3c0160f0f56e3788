#include "atoll/param_server/connection.h"

#include "atoll/base/error.h"

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
  const bool is_scheduler = letter.from == Mailbox::Letter::From::kScheduler;
  const auto server = static_cast<ServerId>(letter.id);
  switch (letter.kind) {
    case Kind::kOpened:
      if (!is_scheduler) return worker_.connected(server);
      has_scheduler_ = true;
      return worker_.connected_to_scheduler();
    case Kind::kReceived: {
      const Message message = decode(letter.text);
      if (is_scheduler) return worker_.received_from_scheduler(message);
      return worker_.received_from_server(server, message);
    }
    default:
      if (letter.is_final) throw user_error("{}", letter.text);
      if (!is_scheduler) return;
      if (has_scheduler_) away_since_ = Clock::now();
      has_scheduler_ = false;
      why_not_ = letter.text;
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
