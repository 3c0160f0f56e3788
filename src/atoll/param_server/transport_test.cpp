#include "atoll/param_server/transport.h"

#include <atomic>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/param_server/messages.h"
#include "atoll/wire/secret.h"
#include "atoll/wire/testing.h"

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

TEST(TransportOptions, TcpHasNoTls) {
  const auto refusal = [](const LinkOptions& options) -> std::string {
    try {
      check_link(options, "sync.transport", "sync.identity");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({.transport = Transport::kTcp, .identity = "me", .secret = {}}),
              testing::AllOf(HasSubstr("sync.transport"), HasSubstr("TLS"),
                             HasSubstr("sync.identity (me)")));
  EXPECT_EQ(refusal({.transport = Transport::kTcp, .identity = {}, .secret = "file"}), "");
  EXPECT_EQ(refusal({.transport = Transport::kGrpc, .identity = {}, .secret = "file"}), "");
  EXPECT_THROW(parse_transport("udp", "sync.transport"), Error);
}

// A run's secret, and another one.
class TcpSecrets : public testing::Test {
 protected:
  TcpSecrets() {
    for (const char* name : {"mine", "other"}) wire::Secret::make(room_ / name);
  }
  LinkOptions with(const char* name) const {
    return {.transport = Transport::kTcp, .identity = {}, .secret = room_ / name};
  }
  static constexpr LinkOptions kNone = {.transport = Transport::kTcp, .identity = {}, .secret = {}};

  wire::test::Directory room_;
  Echo echo_;
};

TEST_F(TcpSecrets, LetInWhoKnowsThem) {
  const auto listener = open_listener("127.0.0.1:0", with("mine"), echo_);
  echo_.listener = listener.get();
  Client client(listener->address(), with("mine"));
  ASSERT_TRUE(client.connects.wait(1));
  ASSERT_TRUE(client.send(std::string(kMaxFrame, 'x')));
  EXPECT_TRUE(client.frames.wait(1));
  listener->stop();
}

TEST_F(TcpSecrets, KeepOutWhoDoesNot) {
  const auto listener = open_listener("127.0.0.1:0", with("mine"), echo_);
  Client stranger(listener->address(), kNone);
  ASSERT_TRUE(stranger.breaks.wait(1));
  EXPECT_THAT(stranger.breaks.all().front(), HasSubstr("has a secret and this side has none"));
  Client wrong(listener->address(), with("other"));
  ASSERT_TRUE(wrong.breaks.wait(1));
  EXPECT_THAT(wrong.breaks.all().front(), HasSubstr("does not know the run's secret"));
  listener->stop();
  EXPECT_THAT(echo_.opens.all(), IsEmpty());
  EXPECT_THAT(stranger.connects.all(), IsEmpty());
  EXPECT_THAT(wrong.connects.all(), IsEmpty());
}

// What took over a server's port learns nothing and is told nothing.
TEST_F(TcpSecrets, AreAskedOfServersToo) {
  const auto listener = open_listener("127.0.0.1:0", kNone, echo_);
  Client client(listener->address(), with("mine"));
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all().front(), HasSubstr("does not know the run's secret"));
  EXPECT_THAT(client.connects.all(), IsEmpty());
  listener->stop();
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

}  // namespace
}  // namespace atl::param_server
