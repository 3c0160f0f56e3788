// Ranks of one process over sockets, and peers that are strangers, liars or gone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <exception>
#include <filesystem>
#include <numeric>
#include <thread>

#include "atoll/comm/tcp/connections.h"
#include "atoll/comm/tcp/tcp_mover.h"
#include "atoll/comm/tcp/world.h"
#include "atoll/comm/testing/suite.h"

namespace atl::comm::tcp {
namespace {

using rendezvous::Clock;
using rendezvous::Socket;
using testing::HasSubstr;

/// What `action` throws; empty: nothing.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Runs `body` on a thread for each rank, with a world over TCP alone.
void run_tcp(int size, const std::function<void(World& world)>& body) {
  RendezvousServer server("127.0.0.1", 0);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      errors[static_cast<std::size_t>(rank)] = error_of([&] {
        const auto world = open_tcp({.rank = rank,
                                     .size = size,
                                     .rendezvous = server.address(),
                                     .address = {},
                                     .generation = 0,
                                     .shared_memory = false,
                                     .connect_timeout_s = 60},
                                    {.timeout_s = 60, .local_ranks = 0});
        body(*world);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Tcp, IsBitwiseTheSerialChain) {
  run_tcp(3, [](World& world) {
    EXPECT_EQ(world.backend(), "tcp");
    test::check_collectives(world);
  });
}

TEST(Tcp, SumsWhatTakesManyPieces) {
  run_tcp(2, [](World& world) {
    test::check_all_reduce<float>(world.all(), 1'000'003, 5, Reduce::kSum);
    test::check_broadcast<float>(world.all(), 500'001, 6);
  });
}

/// A directory that is gone with the object, as a rendezvous of ranks that connect.
class RendezvousDirectory {
 public:
  RendezvousDirectory() : path_(std::filesystem::temp_directory_path() / "atoll-tcp-XXXXXX") {
    std::string name = path_.string();
    path_ = ::mkdtemp(name.data());
  }
  ~RendezvousDirectory() { std::filesystem::remove_all(path_); }

  std::unique_ptr<Rendezvous> open() const {
    return open_rendezvous("file://" + path_.string(), 1);
  }
  Connections connect(int rank, int size, double timeout_s) const {
    const auto store = open();
    TcpOptions options;
    options.rank = rank;
    options.size = size;
    options.address = "127.0.0.1";
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    return connect_all(*store, "directory", options, members, timeout_s);
  }
  Socket call(int rank) const {
    return rendezvous::connect_to(
        rendezvous::parse_tcp(open()->wait("directory/tcp/" + std::to_string(rank), 60)),
        Clock::now() + std::chrono::minutes(1));
  }

 private:
  std::filesystem::path path_;
};

void send(const Socket& socket, std::string_view bytes) {
  rendezvous::send_all(socket, bytes, Clock::now() + std::chrono::minutes(1), "the other end");
}

TEST(TcpLinks, StrangersAreDropped) {
  const RendezvousDirectory directory;
  Connections first;
  std::thread rank0([&] { first = directory.connect(0, 2, 60); });
  const Socket silent = directory.call(0), liar = directory.call(0);
  send(liar, std::string(64, 'x'));
  EXPECT_THAT(error_of([&] {
                rendezvous::receive_all(liar, 1, Clock::now() + std::chrono::minutes(1), "rank 0");
              }),
              HasSubstr("closed"));
  const Connections second = directory.connect(1, 2, 60);
  rank0.join();
  ASSERT_EQ(first.sockets.size(), 2U);
  EXPECT_FALSE(first.sockets[0]);
  EXPECT_TRUE(first.sockets[1]);
  EXPECT_TRUE(second.sockets[0]);
  EXPECT_EQ(first.local_ranks, 2);
  EXPECT_EQ(second.local_ranks, 2);
}

TEST(TcpLinks, WhoDoesNotComeIsNamed) {
  const RendezvousDirectory directory;
  EXPECT_THAT(error_of([&] { directory.connect(0, 3, 0.2); }),
              HasSubstr("ranks 1, 2 of 3 did not connect to rank 0 within 0.2 s"));
}

TEST(TcpLinks, WhoCannotBeReachedIsNamed) {
  const RendezvousDirectory directory;
  int port = 0;
  {
    const Socket closed = rendezvous::listen_on("127.0.0.1", 0);
    port = rendezvous::port_of(closed);
  }
  directory.open()->set("directory/tcp/0", fmt::format("tcp://127.0.0.1:{}", port));
  EXPECT_THAT(error_of([&] { directory.connect(1, 2, 5); }),
              HasSubstr(fmt::format("rank 1 cannot reach rank 0 at tcp://127.0.0.1:{}", port)));
}

TEST(TcpLinks, AnotherServerIsNoRank) {
  const RendezvousDirectory directory;
  const Socket listener = rendezvous::listen_on("127.0.0.1", 0);
  directory.open()->set("directory/tcp/0",
                        fmt::format("tcp://127.0.0.1:{}", rendezvous::port_of(listener)));
  std::string error;
  std::thread rank1([&] { error = error_of([&] { directory.connect(1, 2, 60); }); });
  // The first that waits is accepted; the listener does not block, the caller has to come.
  Socket caller;
  const auto end = Clock::now() + std::chrono::minutes(1);
  while (!caller && Clock::now() < end) caller = Socket(::accept(listener.fd(), nullptr, nullptr));
  send(caller, std::string(64, 'x'));
  rank1.join();
  EXPECT_THAT(error, HasSubstr("no rank of this run"));
}

TEST(TcpLinks, AForeignAddressIsRefused) {
  const RendezvousDirectory directory;
  TcpOptions options;
  options.size = 2;
  options.address = "192.0.2.1";  // of nobody (RFC 5737)
  const std::vector<int> members{0, 1};
  const auto store = directory.open();
  EXPECT_THAT(error_of([&] { connect_all(*store, "directory", options, members, 1); }),
              HasSubstr("rank 0 cannot be reached at 192.0.2.1"));
}

/// This rank, 0, with a rank 1 that the test plays.
class Pair {
 public:
  Pair() {
    int ends[2] = {-1, -1};
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends);
    std::vector<Socket> sockets(2);
    sockets[1] = Socket(ends[0]);
    peer_ = Socket(ends[1]);
    mover_ = std::make_unique<TcpMover>(std::move(sockets), 0);
  }

  TcpMover& mover() { return *mover_; }
  void peer_sends(std::string_view bytes) { send(peer_, bytes); }
  void peer_sends(MessageKind kind, std::uint64_t bytes, std::uint32_t magic = 0x314c5441) {
    const Frame frame{magic, kind, bytes};
    peer_sends({reinterpret_cast<const char*>(&frame), sizeof(frame)});
  }
  void peer_closes() { peer_ = Socket(); }
  /// What comes of it, with `bytes` expected of rank 1.
  std::string outcome(std::size_t bytes) {
    room_.assign(bytes, '\0');
    mover_->clear();
    mover_->receive({1, MessageKind::kBytes, reinterpret_cast<std::byte*>(room_.data()), bytes});
    return error_of([&] {
      while (mover_->step()) {
      }
    });
  }
  const std::string& room() const { return room_; }

 private:
  Socket peer_;
  std::unique_ptr<TcpMover> mover_;
  std::string room_;
};

TEST(TcpMovement, BytesThatAreNoFrameAreNamed) {
  Pair pair;
  pair.peer_sends(MessageKind::kBytes, 4, 0x20544547);
  EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 sends bytes that are none of atoll's frames"));
  Pair other;
  other.peer_sends(MessageKind{77}, 4);
  EXPECT_THAT(other.outcome(4), HasSubstr("none of atoll's frames"));
}

TEST(TcpMovement, AFrameOfAnotherSizeTakesNoMemory) {
  Pair pair;
  pair.peer_sends(MessageKind::kBytes, ~std::uint64_t{0});
  EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 sends 18446744073709551615 bytes where rank 0"));
}

TEST(TcpMovement, FramesOfNoCallAreRefused) {
  for (const MessageKind kind : {MessageKind::kContribution, MessageKind::kResult}) {
    Pair pair;
    pair.peer_sends(kind, 4);
    EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 sends 4 bytes that do not belong to this call"));
  }
}

TEST(TcpMovement, AnotherCallIsNamed) {
  Pair pair;
  CallHeader header;
  header.op = static_cast<std::uint8_t>(Op::kBarrier);
  std::memcpy(header.group_name, "world", 5);
  pair.peer_sends(MessageKind::kCall, sizeof(header));
  pair.peer_sends({reinterpret_cast<const char*>(&header), sizeof(header)});
  EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 calls barrier"));
}

TEST(TcpMovement, WhoLeavesAndWhoIsGoneAreToldApart) {
  Pair pair;
  pair.peer_sends(kGoodbye, 0);
  EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 has left"));
  Pair other;
  other.peer_closes();
  EXPECT_THAT(other.outcome(4), HasSubstr("the connection to rank 1 is broken: it is gone"));
}

TEST(TcpMovement, WhatCameBeforeTheEndIsTaken) {
  Pair pair;
  pair.peer_sends(MessageKind::kBytes, 4);
  pair.peer_sends("abcd");
  pair.peer_sends(kGoodbye, 0);
  pair.peer_closes();
  EXPECT_EQ(pair.outcome(4), "");
  EXPECT_TRUE(pair.mover().done());
  EXPECT_EQ(pair.room(), "abcd");
  EXPECT_THAT(pair.outcome(4), HasSubstr("rank 1 has left"));
}

TEST(TcpMovement, BytesMayComeOneByOne) {
  Pair pair;
  EXPECT_EQ(pair.outcome(5), "");
  const Frame frame{0x314c5441, MessageKind::kBytes, 5};
  std::string bytes(reinterpret_cast<const char*>(&frame), sizeof(frame));
  for (const char c : bytes + "hello") {
    EXPECT_FALSE(pair.mover().done());
    pair.peer_sends({&c, 1});
    while (pair.mover().step()) {
    }
  }
  EXPECT_TRUE(pair.mover().done());
  EXPECT_EQ(pair.room(), "hello");
}

}  // namespace
}  // namespace atl::comm::tcp
