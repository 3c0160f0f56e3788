// What the ranks do that the tests here start; see run_rank.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <thread>

#include "atoll/comm/gloo/world.h"
#include "atoll/comm/mpi/world.h"
#include "atoll/comm/tcp/world.h"
#include "atoll/comm/testing/channels.h"
#include "atoll/comm/testing/suite.h"
#include "processes.h"

namespace {
std::atomic<std::int64_t> allocations = 0;
}  // namespace

// Counts what this program takes from the heap through C++. Not inlined: the compiler would take
// new and free for a pair that does not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes == 0 ? 1 : bytes)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* data) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace atl::dist {

namespace {

using namespace atl::comm;

struct Rank {
  std::string backend;  // "mpi", "mpi-alone", "gloo", "gloo-tcp", "tcp", "tcp-alone"
  double timeout_s = 60;
  TcpOptions meeting;  // of all that have no mpirun

  std::unique_ptr<World> open() const {
    WorldOptions options;
    options.timeout_s = timeout_s;
    if (backend.starts_with("mpi")) return open_mpi(options, {backend == "mpi"});
    if (backend.starts_with("tcp")) return open_tcp(meeting, options);
    return open_gloo({.rank = meeting.rank,
                      .size = meeting.size,
                      .rendezvous = meeting.rendezvous,
                      .address = {},
                      .interface = {},
                      .generation = meeting.generation,
                      .shared_memory = meeting.shared_memory},
                     options);
  }
};

// Says what was seen, on a line that a test looks for.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  std::fflush(stdout);
}

// `rounds` counts the rounds begun.
void loop_for_ever(World& world, std::atomic<int>& rounds) {
  std::vector<float> data(1 << 20, 1.0f);
  for (;;) {
    ++rounds;
    world.all().all_reduce(comm::test::view(data));
    world.all().barrier();
  }
}

void loop_for_ever(World& world) {
  std::atomic<int> rounds = 0;
  loop_for_ever(world, rounds);
}

void suite(const Rank& rank) {
  const auto world = rank.open();
  comm::test::check_collectives(*world);
  // Long enough for many pieces and turns of the lanes, and odd.
  comm::test::check_all_reduce<float>(world->all(), 3'000'001, 5, Reduce::kSum);
  comm::test::check_broadcast<float>(world->all(), 1'500'001, 6);
  say("suite passed");
}

// One of them is killed while all are in a collective.
void killed(const Rank& rank) {
  const auto world = rank.open();
  world->all().barrier();
  std::atomic<int> rounds = 0;
  std::thread killer;
  if (world->rank() == 1) {
    killer = std::thread([&rounds] {
      while (rounds < 4) std::this_thread::yield();
      ::raise(SIGKILL);
    });
    killer.detach();
  }
  loop_for_ever(*world, rounds);
}

void stopped(const Rank& rank) {
  const auto world = rank.open();
  world->all().barrier();
  std::vector<float> data(1000);
  world->all().all_reduce(comm::test::view(data));
  if (world->rank() == 1) ::raise(SIGSTOP);
  loop_for_ever(*world);
}

void mismatched(const Rank& rank) {
  const auto world = rank.open();
  std::vector<float> data(60);
  world->all().all_reduce(comm::test::view(data));
  if (world->rank() == 1) {
    world->all().broadcast(comm::test::view(data), 0);
  } else {
    world->all().all_reduce(comm::test::view(data));
  }
}

void wrong_size(const Rank& rank) {
  const auto world = rank.open();
  std::vector<float> data(60);
  if (world->rank() == 0) world->all().send(Tensor(data.data(), {Dtype::kF32, {60}}), 1);
  if (world->rank() == 1) world->all().recv(Tensor(data.data(), {Dtype::kF32, {40}}), 0);
  world->all().barrier();
}

void aborted(const Rank& rank) {
  const auto world = rank.open();
  world->all().barrier();
  if (world->rank() == 1) {
    world->abort("its file is missing");
    throw user_error("its file is missing");
  }
  loop_for_ever(*world);
}

// One leaves without a word, though the others still call.
void left(const Rank& rank) {
  const auto world = rank.open();
  world->all().barrier();
  if (world->rank() == 1) return;
  loop_for_ever(*world);
}

// What several channels do, and what a call allocates.
void channels(const Rank& rank) {
  const auto world = rank.open();
  comm::test::check_channels(*world);
  // Gloo makes a buffer for each message.
  if (rank.backend != "gloo-tcp")
    comm::test::check_no_allocations(*world, [] { return allocations.load(); });
  say("channels passed");
}

// A mistake on one channel, while all others wait on another.
void failing_channel(const Rank& rank) {
  const auto world = rank.open();
  comm::test::fail_on_one_channel(*world);
}

// One of them is killed while the others wait for it on two channels.
void killed_on_channels(const Rank& rank) {
  const auto world = rank.open();
  const auto tp = comm::test::all_on(*world, "dp") ? comm::test::all_on(*world, "tp") : nullptr;
  world->all().barrier();
  if (world->rank() == 1) ::raise(SIGKILL);
  std::vector<float> bucket(1000);
  Work reduction = world->all().start_all_reduce(comm::test::view(bucket));
  std::string first;
  try {
    tp->barrier();
  } catch (const PeerError& error) {
    first = error.what();
  }
  try {
    reduction.wait();
  } catch (const PeerError& error) {
    say("{}", first == error.what() ? "both the same" : "not the same: " + first);
    throw;
  }
}

// Survivors gather again, with the ranks that are left.
void regrouped(const Rank& rank) {
  {
    const auto world = rank.open();
    world->all().barrier();
    comm::test::all_on(*world, "dp");
    const auto tp = comm::test::all_on(*world, "tp");  // open when the rank is lost
    tp->barrier();
    if (world->rank() == 1) ::raise(SIGKILL);
    try {
      loop_for_ever(*world);
    } catch (const PeerError& error) {
      say("lost {}", error.rank());
    }
  }
  Rank again = rank;
  again.meeting.generation = 1;
  again.meeting.size -= 1;
  again.meeting.rank -= again.meeting.rank > 1 ? 1 : 0;
  const auto world = again.open();
  comm::test::check_all_reduce<float>(world->all(), 1001, 5, Reduce::kSum);
  comm::test::check_channels(*world);
  say("regrouped {} of {}", world->rank(), world->size());
}

}  // namespace

int run_rank(const std::vector<std::string>& arguments) {
  const std::map<std::string, std::function<void(const Rank&)>> bodies = {
      {"suite", suite},
      {"killed", killed},
      {"stopped", stopped},
      {"mismatched", mismatched},
      {"wrong_size", wrong_size},
      {"channels", channels},
      {"failing_channel", failing_channel},
      {"killed_on_channels", killed_on_channels},
      {"aborted", aborted},
      {"left", left},
      {"regrouped", regrouped}};
  Rank rank;
  rank.backend = arguments.at(0);
  rank.timeout_s = std::stod(arguments.at(2));
  if (arguments.size() > 4) {
    rank.meeting.rank = std::stoi(arguments.at(4));
    rank.meeting.size = std::stoi(arguments.at(5));
    rank.meeting.rendezvous = arguments.at(6);
    rank.meeting.shared_memory = rank.backend == "gloo" || rank.backend == "tcp";
  }
  try {
    bodies.at(arguments.at(1))(rank);
    return 0;
  } catch (const PeerError& error) {
    say("peer {}: {}", error.rank(), error.what());
    return 1;
  } catch (const Error& error) {
    say("error: {}", error.what());
    return error.exit_code();
  }
}

}  // namespace atl::dist
