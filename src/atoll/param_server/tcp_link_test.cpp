#include "atoll/param_server/tcp_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/processes/resident.h"
#include "atoll/param_server/messages.h"
#include "atoll/wire/testing.h"

namespace atl::param_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Both ends of a connection, by hand.
class TcpLinks : public testing::Test {
 protected:
  TcpLinks() { open({}); }
  void open(const TcpLink::Proof& proof) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return;
    link_ = std::make_unique<TcpLink>(comm::rendezvous::Socket(pair[0]), start_, proof);
    other_ = comm::rendezvous::Socket(pair[1]);
  }
  // What the other side sends: a head as on the wire, and bytes.
  void say(std::uint32_t kind, const std::string& body, std::uint64_t bytes) {
    const comm::tcp::Frame head = {
        .magic = 0x314c5441, .kind = comm::tcp::MessageKind{kind}, .bytes = bytes};
    std::string text(reinterpret_cast<const char*>(&head), sizeof(head));
    text += body;
    ASSERT_EQ(::send(other_.fd(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void say(std::uint32_t kind, const std::string& body) { say(kind, body, body.size()); }
  static std::string greeting() { return std::string(TcpLink::kGreeting) + wire::make_nonce(); }
  void greet() {
    say(1, greeting());
    say(1, "");
  }
  std::string refusal(std::chrono::milliseconds later = {}) {
    try {
      link_->move(start_ + later, messages_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TcpLink::Clock::time_point start_ = TcpLink::Clock::now();
  std::unique_ptr<TcpLink> link_;
  comm::rendezvous::Socket other_;
  std::vector<std::string> messages_;
};

TEST_F(TcpLinks, GiveMessagesOnceTheyAreGreeted) {
  greet();
  say(2, "first");
  say(4, "");  // a sign of life
  say(2, "");
  say(5, "why it ends");
  EXPECT_EQ(refusal(), "");
  EXPECT_TRUE(link_->is_greeted());
  EXPECT_THAT(messages_, ElementsAre("first", ""));
  EXPECT_EQ(link_->goodbye(), "why it ends");
}

TEST_F(TcpLinks, RefuseAMessageBeforeTheGreeting) {
  say(2, "first");
  EXPECT_THAT(refusal(), HasSubstr("greet"));
}

TEST_F(TcpLinks, RefuseASecondGreeting) {
  greet();
  greet();
  EXPECT_THAT(refusal(), HasSubstr("greets twice"));
}

TEST_F(TcpLinks, RefuseAGreetingOfAnotherVersion) {
  say(1, "atoll parameter server over tcp, 9 " + wire::make_nonce());
  EXPECT_THAT(refusal(), HasSubstr("another version"));
}

TEST_F(TcpLinks, RefuseAFrameThatIsTooLong) {
  greet();
  say(2, "", kMaxFrame + 1);
  EXPECT_THAT(refusal(), HasSubstr("a frame of kind 2"));
}

TEST_F(TcpLinks, RefuseFramesOfOtherKinds) {
  greet();
  say(3, "");
  EXPECT_THAT(refusal(), HasSubstr("a frame of kind 3"));
}

TEST_F(TcpLinks, RefuseOtherProtocols) {
  const std::string text = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  ASSERT_EQ(::send(other_.fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_THAT(refusal(), HasSubstr("grpc"));
}

// A process that is stopped keeps its connections.
TEST_F(TcpLinks, TakeSilenceForTheEnd) {
  greet();
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(refusal(TcpLink::kSilence), "");
  EXPECT_THAT(refusal(TcpLink::kSilence + std::chrono::milliseconds(1)), HasSubstr("nothing came"));
}

TEST_F(TcpLinks, AreAliveWithNothingToSay) {
  greet();
  EXPECT_EQ(refusal(), "");
  say(4, "");
  EXPECT_EQ(refusal(TcpLink::kSilence), "");
  EXPECT_EQ(refusal(2 * TcpLink::kSilence), "");
  // The other side hears one, too: its greeting, and an empty frame a second.
  char bytes[1024];
  const ssize_t got = ::recv(other_.fd(), bytes, sizeof(bytes), 0);
  EXPECT_EQ(got, static_cast<ssize_t>(16 + greeting().size() + 16 + 2 * 16));
}

// What a stranger sends is not believed before it has proved itself: neither a length, nor what was
// recorded of another connection.
TEST_F(TcpLinks, TakeNothingBeforeTheProof) {
  const wire::test::Directory room;
  wire::Secret::make(room / "secret");
  const wire::Secret secret(room / "secret");
  const TcpLink::Proof proof = {.secret = &secret, .is_client = false, .port = 7};
  open(proof);
  say(1, greeting());
  say(2, "", kMaxFrame);
  EXPECT_THAT(refusal(), HasSubstr("does not greet first"));

  std::vector<std::string> recorded;  // of a client that knows the secret
  {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    TcpLink server(comm::rendezvous::Socket(pair[0]), start_, proof);
    TcpLink client(comm::rendezvous::Socket(::dup(pair[1])), start_,
                   {.secret = &secret, .is_client = true, .port = 7});
    for (int i = 0; i < 2; ++i) {
      client.move(start_, messages_);
      char bytes[4096];
      const ssize_t got = ::recv(pair[0], bytes, sizeof bytes, MSG_PEEK);
      recorded.emplace_back(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      server.move(start_, messages_);
    }
    EXPECT_TRUE(server.is_greeted());
    ::close(pair[1]);
  }
  open(proof);
  for (const std::string& bytes : recorded) {
    ASSERT_EQ(::send(other_.fd(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  EXPECT_THAT(refusal(), HasSubstr("does not know the run's secret"));
  EXPECT_FALSE(link_->is_greeted());
}

TEST_F(TcpLinks, EndWhoDoesNotProveItself) {
  say(1, greeting());
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(refusal(TcpLink::kSilence + std::chrono::milliseconds(1)),
              HasSubstr("did not greet within 5 s"));
}

// Where there is no secret a length alone takes no memory.
TEST_F(TcpLinks, GiveRoomForWhatHasCome) {
  greet();
  EXPECT_EQ(refusal(), "");
  const std::size_t before = resident_bytes();
  say(2, "", kMaxFrame);
  EXPECT_EQ(refusal(), "");
  EXPECT_LT(resident_bytes(), before + kMaxFrame / 2);
  open({});
  greet();
  const std::string body(300'000, 'x');
  std::thread sender([&] {
    say(2, "", body.size());
    for (std::size_t at = 0; at < body.size();) {
      const ssize_t n = ::send(other_.fd(), body.data() + at, body.size() - at, MSG_NOSIGNAL);
      if (n > 0) at += static_cast<std::size_t>(n);
    }
  });
  while (messages_.empty()) ASSERT_EQ(refusal(), "");
  sender.join();
  EXPECT_TRUE(messages_.front() == body);
}

}  // namespace
}  // namespace atl::param_server
