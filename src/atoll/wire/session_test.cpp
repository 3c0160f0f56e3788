#include "atoll/wire/session.h"

#include "atoll/base/error.h"
#include "atoll/wire/testing.h"
#include "atoll/wire/testing/relay.h"

namespace atl::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A server in plaintext on loopback that sends frames back.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : server_(std::make_unique<Server>(options(), &echo_, nullptr)) {
    echo_.server = server_.get();
    address_ = server_->address();
  }
  ~SessionTest() override { server_.reset(); }

  static ServerOptions options() {
    return {.max_sessions = 4, .max_queue_bytes = std::size_t{8} << 20};
  }

  test::Echo echo_;
  std::unique_ptr<Server> server_;
  std::string address_;
};

TEST_F(SessionTest, FramesArriveInOrderBothWays) {
  constexpr int kFrames = 10'000;
  test::TestClient client(test::session_options(address_, {}));
  ASSERT_TRUE(client.connects.wait(1));
  std::vector<std::string> sent;
  std::uint64_t bytes = 0;
  for (int i = 0; i < kFrames; ++i) {
    sent.push_back(fmt::format("frame {}", i));
    bytes += sent.back().size();
    ASSERT_TRUE(client.session.send(sent.back()));
  }
  ASSERT_TRUE(client.frames.wait(kFrames));
  EXPECT_EQ(client.frames.all(), sent);
  EXPECT_EQ(echo_.frames.all(), sent);
  EXPECT_EQ(client.session.traffic().sent_bytes, bytes);
  EXPECT_EQ(client.session.traffic().received_bytes, bytes);
  EXPECT_EQ(server_->traffic().received_bytes, bytes);
}

TEST_F(SessionTest, FinishLosesNothing) {
  test::TestClient client(test::session_options(address_, {}));
  ASSERT_TRUE(client.connects.wait(1));
  const std::string frame(100'000, 'x');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client.session.send(frame));
  EXPECT_TRUE(client.session.finish(5000));
  EXPECT_EQ(echo_.frames.all().size(), 50u);
  EXPECT_FALSE(client.session.send("late"));
  ASSERT_TRUE(echo_.closes.wait(1));
  EXPECT_THAT(echo_.closes.all(), ElementsAre("the client ended it"));
  EXPECT_THAT(client.breaks.all(), IsEmpty());
}

TEST_F(SessionTest, AServerThatIsAwayIsOneLineAndThenFound) {
  server_.reset();
  test::TestClient client(test::session_options(address_, {}));
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all()[0],
              HasSubstr("cannot connect to " + address_ + ": Connection refused"));
  ServerOptions again = options();
  again.listen = address_;
  server_ = std::make_unique<Server>(again, &echo_, nullptr);
  EXPECT_TRUE(client.connects.wait(1));
  EXPECT_EQ(client.breaks.all().size(), 1u);
}

TEST_F(SessionTest, ABrokenConnectionIsMadeAgain) {
  test::Relay relay(address_, {});
  test::TestClient client(test::session_options(relay.address(), {}));
  for (std::size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(client.connects.wait(i));
    relay.cut();
    ASSERT_TRUE(client.breaks.wait(i));
    ASSERT_TRUE(echo_.closes.wait(i));
  }
  ASSERT_TRUE(client.connects.wait(4));
  EXPECT_TRUE(client.session.send("still here"));
  ASSERT_TRUE(client.frames.wait(1));
  EXPECT_THAT(client.frames.all(), ElementsAre("still here"));
}

TEST_F(SessionTest, AConnectionThatFallsSilentIsGivenUp) {
  test::Relay relay(address_, {});
  SessionOptions options = test::session_options(relay.address(), {});
  options.keepalive = {.interval_ms = 50, .timeout_ms = 50};
  options.connect_timeout_ms = 100;
  test::TestClient client(options);
  ASSERT_TRUE(client.connects.wait(1));
  relay.freeze();
  EXPECT_TRUE(client.breaks.wait(1));
}

TEST_F(SessionTest, AServerThatDoesNotAnswerIsALine) {
  test::Relay relay(address_, {});
  relay.freeze();
  SessionOptions options = test::session_options(relay.address(), {});
  options.connect_timeout_ms = 100;
  test::TestClient client(options);
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all()[0],
              HasSubstr(relay.address() + " takes connections but does not answer"));
}

TEST_F(SessionTest, ClosingTellsWhy) {
  test::TestClient client(test::session_options(address_, {}));
  ASSERT_TRUE(client.connects.wait(1));
  EXPECT_TRUE(server_->send(echo_.last, "last words"));
  server_->close(echo_.last, "you were turned out");
  EXPECT_FALSE(server_->send(echo_.last, "more"));
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.frames.all(), ElementsAre("last words"));
  EXPECT_THAT(client.breaks.all()[0], HasSubstr("you were turned out"));
  ASSERT_TRUE(echo_.closes.wait(1));
  EXPECT_THAT(echo_.closes.all(), ElementsAre("you were turned out"));
}

TEST_F(SessionTest, AFrameThatIsTooLargeEndsOnlyItsSession) {
  test::TestClient honest(test::session_options(address_, {}));
  for (const auto& [size, words] :
       {std::pair{kMaxFrameBytes + 1, "a frame of 4194305 bytes; the most is 4194304"},
        std::pair{2 * kMaxFrameBytes, "message larger than max"}}) {
    SessionOptions options = test::session_options(address_, {});
    options.max_frame_bytes = 3 * kMaxFrameBytes;
    test::TestClient other(options);
    ASSERT_TRUE(other.connects.wait(1));
    EXPECT_TRUE(other.session.send(std::string(size, 'x')));
    ASSERT_TRUE(other.breaks.wait(1));
    EXPECT_THAT(other.breaks.all()[0], HasSubstr(words));
  }
  ASSERT_TRUE(honest.connects.wait(1));
  EXPECT_TRUE(honest.session.send(std::string(kMaxFrameBytes, 'y')));
  ASSERT_TRUE(honest.frames.wait(1));
  EXPECT_EQ(honest.frames.all()[0], std::string(kMaxFrameBytes, 'y'));
}

TEST_F(SessionTest, AClientThatDoesNotReadCannotFillTheServer) {
  std::mutex gate;
  std::unique_lock closed(gate);
  Session slow(test::session_options(address_, {}),
               {.received = [&](const std::string&) { const std::lock_guard wait(gate); }});
  ASSERT_TRUE(echo_.opens.wait(1));
  // The queue, the window of a stream, and the system's buffers at most.
  constexpr int kMost = 64;
  const std::string frame(std::size_t{1} << 20, 'x');
  int taken = 0;
  while (taken < kMost && server_->send(echo_.last, frame)) ++taken;
  EXPECT_LT(taken, kMost);
  EXPECT_GE(taken, 8);
  closed.unlock();
  ASSERT_TRUE(echo_.closes.wait(1));
  EXPECT_THAT(echo_.closes.all()[0], HasSubstr("does not read"));
}

TEST_F(SessionTest, ThereAreOnlySoMany) {
  std::vector<std::unique_ptr<test::TestClient>> clients;
  for (int i = 0; i < options().max_sessions; ++i) {
    clients.push_back(std::make_unique<test::TestClient>(test::session_options(address_, {})));
    ASSERT_TRUE(clients.back()->connects.wait(1));
  }
  test::TestClient late(test::session_options(address_, {}));
  ASSERT_TRUE(late.breaks.wait(1));
  EXPECT_THAT(late.breaks.all()[0], HasSubstr("too many sessions"));
  clients.pop_back();
  EXPECT_TRUE(late.connects.wait(1));
}

TEST_F(SessionTest, AnExceptionOfTheHandlerEndsOnlyItsSession) {
  class Picky : public test::Echo {
   public:
    void received(SessionId, std::string frame) override {
      throw user_error("no such message: {}", frame);
    }
  } picky;
  Server server({}, &picky, nullptr);
  test::TestClient client(test::session_options(server.address(), {}));
  ASSERT_TRUE(client.connects.wait(1));
  EXPECT_TRUE(client.session.send("hm"));
  ASSERT_TRUE(client.breaks.wait(1));
  EXPECT_THAT(client.breaks.all()[0], HasSubstr("no such message: hm"));
}

TEST(Server, ListensWhereItIsToldOrSaysWhyNot) {
  const Server first({}, nullptr, nullptr);
  const auto problem = [](const std::string& listen) -> std::string {
    try {
      const Server server({.listen = listen}, nullptr, nullptr);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(problem(first.address()), HasSubstr("Address already in use"));
  EXPECT_THAT(problem("0.0.0.0:0"), HasSubstr("can be reached from other machines"));
  EXPECT_THAT(problem("[::]:0"), HasSubstr("can be reached from other machines"));
  EXPECT_THAT(problem("127.0.0.1"), HasSubstr("it must be HOST:PORT"));
  EXPECT_THAT(problem(":1"), HasSubstr("it must be HOST:PORT"));
  EXPECT_THAT(problem("127.0.0.1:99999"), HasSubstr("it must be HOST:PORT"));
}

TEST(Session, PlaintextStaysOnThisMachine) {
  try {
    const Session session({.address = "192.0.2.1:4711"}, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("192.0.2.1:4711 is another machine"));
  }
}

}  // namespace
}  // namespace atl::wire
