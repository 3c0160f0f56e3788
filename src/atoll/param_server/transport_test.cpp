#include "atoll/param_server/transport.h"

#include <atomic>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/param_server/messages.h"
#include "atoll/param_server/tcp_link.h"
#include "atoll/wire/testing.h"

#include <sys/socket.h>

namespace atl::param_server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::SessionId;
using wire::test::Lines;

// Remembers frames, and sends them back.
class Echo : public wire::SessionHandler {
 public:
  void opened(SessionId session, const wire::Peer& /*peer*/) override {
    last = session;
    opens.add("opened");
  }
  void received(SessionId session, std::string frame) override {
    frames.add(frame);
    if (Listener* to = listener) to->send(session, std::move(frame));
  }
  void closed(SessionId /*session*/, const std::string& why) override { closes.add(why); }

  std::atomic<SessionId> last = 0;
  std::atomic<Listener*> listener = nullptr;
  Lines opens, frames, closes;
};

// A connection that remembers what happens to it.
struct Client {
  Client(const std::string& address, const LinkOptions& options)
      : connection(open_connection(
            address, options,
            {.connected = [this] { connects.add("connected"); },
             .received = [this](std::string frame) { frames.add(std::move(frame)); },
             .disconnected =
                 [this](const std::string& why, bool is_final) {
                   breaks.add((is_final ? "final: " : "") + why);
                 }})) {}
  bool send(std::string frame) const { return connection->send(frame); }

  Lines connects, frames, breaks;
  std::unique_ptr<Connection> connection;  // last: its thread uses the others
};

class Transports : public testing::TestWithParam<Transport> {
 protected:
  Transports() { listen("127.0.0.1:0"); }
  ~Transports() override { stop(); }

  void listen(const std::string& at) {
    listener_ = open_listener(at, options(), echo_);
    echo_.listener = listener_.get();
    address_ = listener_->address();
  }
  void stop() {
    if (!listener_) return;
    listener_->stop();
    echo_.listener = nullptr;
    listener_.reset();
  }
  static LinkOptions options() { return {.transport = GetParam(), .identity = {}, .secret = {}}; }

  Echo echo_;
  std::unique_ptr<Listener> listener_;
  std::string address_;
};

INSTANTIATE_TEST_SUITE_P(Transport, Transports, testing::Values(Transport::kGrpc, Transport::kTcp),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Transports, FramesOfAllSizesArriveInOrderBothWays) {
  Client client(address_, options());
  ASSERT_TRUE(client.connects.wait(1));
  std::vector<std::string> sent;
  for (const std::size_t size : {0, 1, 15, 16, 17, 511, 512, 16'383, 16'384, 16'385, 1 << 20}) {
    for (int i = 0; i < 20; ++i) {
      sent.emplace_back(size, static_cast<char>('a' + i));
      ASSERT_TRUE(client.send(sent.back()));
    }
  }
  ASSERT_TRUE(client.frames.wait(sent.size()));
  EXPECT_TRUE(client.frames.all() == sent);
  EXPECT_TRUE(echo_.frames.all() == sent);
}

TEST_P(Transports, TheLargestFrameArrives) {
  Client client(address_, options());
  ASSERT_TRUE(client.connects.wait(1));
  const std::string frame(kMaxFrame, 'x');
  ASSERT_TRUE(client.send(frame));
  ASSERT_TRUE(client.frames.wait(1));
  EXPECT_TRUE(client.frames.all().front() == frame);
}

TEST_P(Transports, FinishLosesNothing) {
  Client client(address_, options());
  ASSERT_TRUE(client.connects.wait(1));
  const std::string frame(100'000, 'x');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.send(frame));
  EXPECT_TRUE(client.connection->finish(60'000));
  EXPECT_EQ(echo_.frames.all().size(), 50u);
  EXPECT_FALSE(client.send("late"));
  ASSERT_TRUE(echo_.closes.wait(1));
  EXPECT_THAT(echo_.closes.all(), ElementsAre("the client ended it"));
  EXPECT_THAT(client.breaks.all(), IsEmpty());
}

TEST_P(Transports, AListenerThatIsAwayIsFoundWhenItComes) {
  const std::string address = address_;
  stop();
  Client client(address, options());
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all().front(), HasSubstr("Connection refused"));
  EXPECT_FALSE(client.send("early"));
  listen(address);
  ASSERT_TRUE(client.connects.wait(1));
  EXPECT_TRUE(client.send("late"));
  ASSERT_TRUE(client.frames.wait(1));
}

TEST_P(Transports, WhoIsClosedHearsWhyAfterWhatWasSentBefore) {
  Client client(address_, options());
  ASSERT_TRUE(client.connects.wait(1));
  ASSERT_TRUE(echo_.opens.wait(1));
  const std::string frame(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(listener_->send(echo_.last, frame));
  listener_->close(echo_.last, "it says what cannot be");
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all().front(), HasSubstr("it says what cannot be"));
  EXPECT_EQ(client.frames.all().size(), 8u);
  ASSERT_TRUE(echo_.closes.wait(1));
  EXPECT_FALSE(listener_->send(1, "nobody reads this"));
  ASSERT_TRUE(client.connects.wait(2));  // and it tries again
}

TEST_P(Transports, AClientThatIsGoneIsNoticed) {
  {
    const Client client(address_, options());
    ASSERT_TRUE(echo_.opens.wait(1));
  }
  ASSERT_TRUE(echo_.closes.wait(1));
}

TEST_P(Transports, ManySendAtOnce) {
  constexpr std::size_t kClients = 8, kFrames = 200;
  std::vector<std::unique_ptr<Client>> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(address_, options()));
    ASSERT_TRUE(clients.back()->connects.wait(1));
  }
  std::vector<std::thread> threads;
  for (const auto& client : clients) {
    threads.emplace_back([&client] {
      for (std::size_t i = 0; i < kFrames; ++i) client->send(std::string(i * 37 % 5000, 'y'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& client : clients) EXPECT_TRUE(client->frames.wait(kFrames));
}

TEST(TransportOptions, TcpHasNeitherTlsNorAuthentication) {
  const auto refusal = [](const LinkOptions& options) -> std::string {
    try {
      check_link(options, "sync.transport", "sync.identity", "sync.secret");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.transport = Transport::kTcp, .identity = "me", .secret = {}}),
              testing::AllOf(HasSubstr("sync.transport"), HasSubstr("TLS"),
                             HasSubstr("sync.identity (me)")));
  EXPECT_THAT(refusal({.transport = Transport::kTcp, .identity = {}, .secret = "file"}),
              testing::AllOf(HasSubstr("authentication"), HasSubstr("sync.secret (file)")));
  EXPECT_EQ(refusal({.transport = Transport::kGrpc, .identity = {}, .secret = "file"}), "");
  EXPECT_THROW(parse_transport("udp", "sync.transport"), Error);
}

// The two sides do not understand each other, and say so.
TEST(TransportOptions, ThatDifferAreTold) {
  Echo echo;
  const auto grpc = open_listener("127.0.0.1:0", {.transport = Transport::kGrpc}, echo);
  Client client(grpc->address(), {.transport = Transport::kTcp});
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all().front(), HasSubstr("grpc"));
  const auto tcp = open_listener("127.0.0.1:0", {.transport = Transport::kTcp}, echo);
  Client other(tcp->address(), {.transport = Transport::kGrpc});
  ASSERT_TRUE(other.breaks.wait(1));
  EXPECT_THAT(echo.opens.all(), IsEmpty());
  grpc->stop();
  tcp->stop();
}

// Both ends of a connection, by hand.
class TcpLinks : public testing::Test {
 protected:
  TcpLinks() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return;
    link_ = std::make_unique<TcpLink>(comm::rendezvous::Socket(pair[0]), start_);
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
  void greet() { say(1, std::string(TcpLink::kGreeting)); }
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
  say(1, "atoll parameter server over tcp, 9");
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
  EXPECT_EQ(got, static_cast<ssize_t>(16 + TcpLink::kGreeting.size() + 2 * 16));
}

}  // namespace
}  // namespace atl::param_server
