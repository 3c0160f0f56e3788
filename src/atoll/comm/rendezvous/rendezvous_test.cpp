#include "atoll/comm/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "atoll/comm/rendezvous/rendezvous_wire.h"
#include "atoll/comm/world.h"

namespace atl::comm {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// A directory that is gone with the object.
struct Directory {
  Directory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "atoll-rendezvous-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string address() const { return "file://" + path; }
  std::string path;
};

void keeps_what_is_set(const std::string& address) {
  const auto one = open_rendezvous(address, 60), other = open_rendezvous(address, 60);
  EXPECT_EQ(one->get("a/b"), std::nullopt);
  const std::string bytes("\0\xff\n/..", 6);
  one->set("a/b", bytes);
  EXPECT_EQ(other->get("a/b"), bytes);
  other->set("a/b", "");
  EXPECT_EQ(one->get("a/b"), "");
  one->set("../a_b", "beside");
  EXPECT_EQ(one->get("a/b"), "");
  one->remove("a/b");
  EXPECT_EQ(other->get("a/b"), std::nullopt);
  const std::string longest(Rendezvous::kLongestValue, 'x');
  one->set(std::string(200, 'k'), longest);
  EXPECT_EQ(other->wait(std::string(200, 'k'), 1), longest);
  EXPECT_THAT(error_of([&] { one->set("k", longest + "x"); }, ErrorKind::kUser),
              HasSubstr("k has 65537 bytes"));
  EXPECT_THAT(error_of([&] { one->get(std::string(257, 'k')); }, ErrorKind::kUser),
              HasSubstr("257 bytes"));
  EXPECT_THAT(error_of([&] { one->wait("never", 0.05); }, ErrorKind::kPeer), HasSubstr("never"));
}

TEST(Rendezvous, ServerKeepsWhatIsSet) {
  const RendezvousServer server("127.0.0.1", 0);
  keeps_what_is_set(server.address());
  EXPECT_EQ(open_rendezvous(server.address(), 60)->local_address(), "127.0.0.1");
}

TEST(Rendezvous, DirectoryKeepsWhatIsSet) {
  const Directory directory;
  keeps_what_is_set(directory.address());
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(directory.path) / ".." / "a_b"));
}

TEST(Rendezvous, MistakesInAnAddressAreNamed) {
  for (const char* address :
       {"", "tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://host:65536",
        "tcp://host:12x", "tcp://:12", "host:12", "file://"}) {
    EXPECT_THAT(error_of([&] { open_rendezvous(address, 0.1); }, ErrorKind::kUser),
                HasSubstr(std::string(address)));
  }
  EXPECT_THAT(error_of([] { open_rendezvous("file:///dev/null/x", 0.1); }, ErrorKind::kUser),
              HasSubstr("/dev/null/x"));
}

TEST(Rendezvous, AHostOfNoAddressIsNamedWithTheFlagThatGivesAnother) {
  EXPECT_THAT(
      error_of([] { open_rendezvous("tcp://no.such.host.invalid:7", 0.1); }, ErrorKind::kUser),
      AllOf(HasSubstr("tcp://no.such.host.invalid:7: the host cannot be found"),
            HasSubstr("--rendezvous=tcp://NAME:7")));
}

TEST(Rendezvous, APortInUseIsNamed) {
  const RendezvousServer server("127.0.0.1", 0);
  EXPECT_THAT(error_of([&] { RendezvousServer("127.0.0.1", server.port()); }, ErrorKind::kUser),
              HasSubstr(server.address() + ": Address already in use"));
}

TEST(Rendezvous, WhereNobodyServesIsNamed) {
  std::string address;
  {
    const RendezvousServer server("127.0.0.1", 0);
    address = server.address();
  }
  EXPECT_THAT(error_of([&] { open_rendezvous(address, 0.1); }, ErrorKind::kUser),
              HasSubstr(address + ": Connection refused"));
  // Of a network that is kept for documentation: nobody answers, or there is no way there.
  EXPECT_THAT(error_of([] { open_rendezvous("tcp://192.0.2.1:9", 0.1); }, ErrorKind::kUser),
              HasSubstr("tcp://192.0.2.1:9"));
}

TEST(Rendezvous, AnotherServiceIsNotTakenForOne) {
  const rendezvous::Socket listener = rendezvous::listen_on("127.0.0.1", 0);
  const int port = rendezvous::port_of(listener);
  std::thread service([&] {
    int fd = -1;
    while ((fd = ::accept(listener.fd(), nullptr, nullptr)) < 0) std::this_thread::yield();
    const char greeting[] = "220 mail.example ready\r\n";
    EXPECT_GT(::send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL), 0);
    ::close(fd);
  });
  EXPECT_THAT(error_of([&] { open_rendezvous(fmt::format("tcp://127.0.0.1:{}", port), 60); },
                       ErrorKind::kUser),
              HasSubstr("no rendezvous server"));
  service.join();
}

/// Whether the other side closes within a minute.
bool closes(const rendezvous::Socket& socket) {
  try {
    const auto end = rendezvous::Clock::now() + std::chrono::minutes(1);
    for (;;) rendezvous::receive_all(socket, 1, end, "server");
  } catch (const Error& error) {
    return std::string(error.what()).find("does not answer") == std::string::npos;
  }
}

TEST(RendezvousServer, DropsWhoeverSendsGarbage) {
  RendezvousServer::Limits limits;
  limits.handshake_s = 0.2;
  const RendezvousServer server("127.0.0.1", 0, limits);
  const auto soon = [] { return rendezvous::Clock::now() + std::chrono::minutes(1); };
  const std::string hello(rendezvous::kHello);
  const std::string garbage[] = {
      "GET / HTTP/1.1\r\n\r\n",
      "atl-rdv2",
      hello + std::string("\xff\xff\xff\xff", 4),   // a frame of 4 GiB
      hello + std::string("\0\0\0\0", 4),           // an empty one
      hello + std::string("\3\0\0\0\2\0\0", 7),     // a key of no bytes
      hello + std::string("\4\0\0\0\2\2\0k", 8),    // a key beyond its frame
      hello + std::string("\4\0\0\0\2\1\x7fk", 8),  // a key of 32 KB
      hello + std::string("\4\0\0\0\x09\1\0k", 8),  // no such verb
      "",                                           // says nothing
  };
  for (const std::string& bytes : garbage) {
    const rendezvous::Socket socket = rendezvous::connect_to({"127.0.0.1", server.port()}, soon());
    rendezvous::send_all(socket, bytes, soon(), "server");
    EXPECT_TRUE(closes(socket)) << testing::PrintToString(bytes);
  }
  const auto client = open_rendezvous(server.address(), 60);
  client->set("k", "v");
  EXPECT_EQ(client->get("k"), "v");
}

TEST(RendezvousServer, SurvivesRandomBytesBehindTheGreeting) {
  const RendezvousServer server("127.0.0.1", 0);
  const auto client = open_rendezvous(server.address(), 60);
  client->set("k", "v");
  std::uint64_t state = 7;
  for (int round = 0; round < 300; ++round) {
    const auto soon = rendezvous::Clock::now() + std::chrono::minutes(1);
    const rendezvous::Socket socket = rendezvous::connect_to({"127.0.0.1", server.port()}, soon);
    std::string bytes(rendezvous::kHello);
    for (int i = 0; i < 64; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      // Small numbers are lengths and verbs that may pass.
      bytes.push_back(static_cast<char>(state >> 40 & (state >> 63 ? 255 : 7)));
    }
    try {
      rendezvous::send_all(socket, bytes, soon, "server");
    } catch (const Error&) {  // it has closed already
    }
  }
  EXPECT_EQ(client->get("k"), "v");
}

TEST(RendezvousServer, HoldsNoMoreThanItsLimit) {
  RendezvousServer::Limits limits;
  limits.bytes = 1000;
  limits.connections = 1;
  const RendezvousServer server("127.0.0.1", 0, limits);
  const auto client = open_rendezvous(server.address(), 60);
  client->set("a", std::string(900, 'x'));
  EXPECT_THAT(error_of([&] { client->set("b", std::string(100, 'x')); }, ErrorKind::kResource),
              HasSubstr("full"));
  client->set("a", std::string(990, 'y'));  // what it replaces does not count
  client->remove("a");
  client->set("b", std::string(100, 'x'));
  EXPECT_EQ(client->get("b")->size(), 100u);
  EXPECT_THAT(error_of([&] { open_rendezvous(server.address(), 0.1); }, ErrorKind::kUser),
              HasSubstr("no rendezvous server"));
}

std::vector<std::string> gather_all(const std::string& address, int size, int generation) {
  std::vector<std::string> names(static_cast<std::size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto rendezvous = open_rendezvous(address, 60);
      names[static_cast<std::size_t>(rank)] = gather(*rendezvous, rank, size, generation, 10);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return names;
}

// The same place and generation again and again, as when a run is started anew by hand.
TEST(Gather, WhatFormerGatheringsLeftDoesNoHarm) {
  const Directory directory;
  const RendezvousServer server("127.0.0.1", 0);
  for (const std::string& address : {directory.address(), server.address()}) {
    std::set<std::string> all;
    for (int round = 0; round < 3; ++round) {
      const std::vector<std::string> names = gather_all(address, 3, 0);
      EXPECT_EQ(names[1], names[0]);
      EXPECT_EQ(names[2], names[0]);
      EXPECT_TRUE(all.insert(names[0]).second) << "a name that an earlier gathering had";
    }
  }
}

TEST(Gather, MissingRanksAreNamed) {
  const RendezvousServer server("127.0.0.1", 0);
  const auto rendezvous = open_rendezvous(server.address(), 60);
  EXPECT_THAT(error_of([&] { gather(*rendezvous, 0, 3, 0, 0.05); }, ErrorKind::kPeer),
              HasSubstr("ranks 1, 2 of 3 did not come"));
  EXPECT_THAT(error_of([&] { gather(*rendezvous, 1, 3, 1, 0.05); }, ErrorKind::kPeer),
              HasSubstr("rank 0 of 3 did not come"));
}

}  // namespace
}  // namespace atl::comm
