// What a parameter server, its workers and its scheduler are sent by each other: messages, and the
// frames in which they travel over tcp; and what a scheduler has written.

#include <sys/socket.h>

#include <algorithm>

#include "atoll/param_server/messages.h"
#include "atoll/param_server/scheduler.h"
#include "atoll/param_server/tcp_link.h"
#include "fuzz.h"

namespace {

using namespace atl::param_server;

RunSpec some_spec() {
  RunSpec spec;
  spec.identity = "abc";
  spec.num_lanes = 3;
  spec.num_steps = 9;
  spec.fence_every = 4;
  spec.num_elements = 8;
  for (std::int64_t begin = 0; begin < 8; begin += 4) {
    Slice slice;
    slice.begin = begin;
    slice.count = 4;
    spec.slices.push_back(slice);
  }
  return spec;
}

// A scheduler of a run that has begun, with worker 0 on session 1 and a server on session 2.
Scheduler begun() {
  Scheduler scheduler;
  WorkerHello worker;
  worker.identity = "abc";
  ServerHello server;
  server.address = "a:1";
  scheduler.received(1, worker);
  scheduler.received(1, Offer{some_spec()});
  scheduler.received(2, server);
  scheduler.received(1, Loaded{scheduler.view().number});
  return scheduler;
}

// The bytes come on a connection, before and after a greeting that is right. A peer that says what
// cannot be is refused.
void feed_link(std::string_view bytes, bool is_greeted) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
  const TcpLink::Clock::time_point now = TcpLink::Clock::now();
  TcpLink link(atl::comm::rendezvous::Socket(pair[0]), now, {});
  {
    const atl::comm::rendezvous::Socket other(pair[1]);
    TcpLink greeting(atl::comm::rendezvous::Socket(::dup(pair[1])), now, {.is_client = true});
    std::vector<std::string> nothing;
    if (is_greeted) {
      greeting.move(now, nothing);
      link.move(now, nothing);
      greeting.move(now, nothing);  // its proof, which is empty without a secret
    }
    bytes = bytes.substr(0, 32 << 10);  // less than the system keeps
    ::send(other.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::vector<std::string> messages;
  atl::fuzz::expect_result_or_refusal([&] {
    while (!link.goodbye()) link.move(now, messages);
  });
  const bool is_whole = std::all_of(messages.begin(), messages.end(), [](const std::string& text) {
    return text.size() <= kMaxFrame;
  });
  if (!is_whole) std::abort();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = atl::fuzz::text(data, size);
  atl::fuzz::expect_result_or_refusal([&] {
    const std::string again = encode(decode(bytes));
    // What is taken must be what its encoding says: nothing of it may be lost on the way.
    if (encode(decode(again)) != again) std::abort();
  });
  // What a scheduler finds on its disk.
  atl::fuzz::expect_result_or_refusal([&] {
    const std::string again = encode(decode_scheduler(bytes));
    if (encode(decode_scheduler(again)) != again) std::abort();
    Scheduler scheduler;
    scheduler.restore(decode_scheduler(bytes));
    scheduler.ticked(1);
    scheduler.ticked(100);
  });
  // A session that says what cannot be is refused, and the run goes on.
  for (const SessionId session : {1, 2, 3}) {
    Scheduler scheduler = begun();
    atl::fuzz::expect_result_or_refusal([&] { scheduler.received(session, decode(bytes)); });
    scheduler.ticked(1);
    scheduler.closed(session);
  }
  feed_link(bytes, /*is_greeted=*/false);
  feed_link(bytes, /*is_greeted=*/true);
  return 0;
}
