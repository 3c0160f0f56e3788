#include "atoll/launch/agent_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/launch/group_outcome.h"

namespace atl::launch {
namespace {

using comm::rendezvous::Clock;
using comm::rendezvous::Socket;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Clock::time_point soon() {
  return Clock::now() + std::chrono::minutes(1);
}

// The other side of a server, in the same thread.
class TestAgent {
 public:
  explicit TestAgent(AgentServer& server)
      : agent_server_(server),
        socket_(comm::rendezvous::connect_to({"127.0.0.1", server.port()}, soon())) {}

  void send(const std::string& bytes) {
    comm::rendezvous::send_all(socket_, bytes, soon(), "server");
  }
  void offer(const Offer& offer) {
    send(std::string(kOfferMagic) + comm::rendezvous::frame_of(format_offer(offer)));
  }
  /// The next line that the server says; "(closed)" when it closes.
  std::string hear() {
    for (const auto deadline = soon(); Clock::now() < deadline;) {
      agent_server_.poll_agents();
      if (const auto line = take_line(heard_)) return *line;
      char bytes[4096];
      const ssize_t got = ::recv(socket_.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got > 0) heard_.append(bytes, static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return "(closed)";
    }
    return "(nothing)";
  }
  void close() { socket_ = Socket(); }

 private:
  AgentServer& agent_server_;
  Socket socket_;
  std::string heard_;
};

const Offer kBeta = {.name = "beta", .id = "1", .slots = 1, .agreement = {"x = 1"}};

class AgentServerTest : public ::testing::Test {
 protected:
  AgentServer& open(AgentServerOptions options = {}) {
    options.host = "127.0.0.1";
    options.agreement = {"x = 1"};
    options.is_taken = [](const std::string& name) { return name == "alpha"; };
    agent_server_ = std::make_unique<AgentServer>(std::move(options));
    return *agent_server_;
  }
  // Waits until the server has seen it.
  bool becomes_true(const std::function<bool()>& happened) {
    for (const auto deadline = soon(); Clock::now() < deadline;) {
      agent_server_->poll_agents();
      if (happened()) return true;
    }
    return false;
  }

  std::unique_ptr<AgentServer> agent_server_;
};

std::vector<std::string> named(const std::vector<Host>& agents) {
  std::vector<std::string> names;
  for (const Host& agent : agents) names.push_back(fmt::format("{}:{}", agent.name, agent.slots));
  return names;
}

TEST_F(AgentServerTest, AnAgentIsNewWhenAllItsPlacesAreThere) {
  AgentServer& server = open();
  Offer two = kBeta;
  two.slots = 2;
  TestAgent first(server), second(server), third(server);
  first.offer(two);
  EXPECT_EQ(first.hear(), "ok");
  EXPECT_THAT(server.take_new_agents(), IsEmpty());
  second.offer(two);
  EXPECT_EQ(second.hear(), "ok");
  EXPECT_THAT(server.take_new_agents(), ElementsAre("beta"));
  EXPECT_THAT(named(server.agents()), ElementsAre("beta:2"));
  third.offer(two);
  EXPECT_THAT(third.hear(), HasSubstr("more ranks than the 2"));
  first.close();
  EXPECT_TRUE(
      becomes_true([&] { return named(server.agents()) == std::vector{std::string("beta:1")}; }));
}

TEST_F(AgentServerTest, WhoDoesNotFitIsToldWhy) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  EXPECT_EQ(beta.hear(), "ok");
  ::testing::internal::CaptureStderr();
  Offer other = kBeta;
  other.agreement = {"x = 2"};
  TestAgent wrong(server);
  wrong.offer(other);
  EXPECT_THAT(wrong.hear(),
              AllOf(HasSubstr("no the agent beta has `x = 2`"), HasSubstr("`x = 1`")));
  EXPECT_EQ(wrong.hear(), "(closed)");
  TestAgent twin(server);
  other = kBeta;
  other.id = "2";
  twin.offer(other);
  EXPECT_THAT(twin.hear(), HasSubstr("no there is an agent called beta already"));
  other.name = "alpha";
  TestAgent host(server);
  host.offer(other);
  EXPECT_THAT(host.hear(), HasSubstr("no the launch has a host called alpha already"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("warning: an agent was not taken: there is an agent called beta already"));
  EXPECT_THAT(named(server.agents()), ElementsAre("beta:1"));
}

TEST_F(AgentServerTest, WhoeverSendsGarbageIsSentAway) {
  AgentServer& server = open({.handshake_timeout = milliseconds(50)});
  const std::string magic(kOfferMagic);
  const std::string garbage[] = {
      "GET / HTTP/1.1\r\n\r\n",
      "atl-rdv1",
      "",                                          // says nothing
      "atl-jo",                                    // nor all of what is first
      magic + std::string("\xff\xff\xff\xff", 4),  // an offer of 4 GiB
      magic + std::string("\1\0\1\0", 4),          // one of 65537 bytes
      magic + std::string("\5\0\0\0be", 6),        // one that does not come
      magic + std::string("\0\0\0\0", 4),          // an empty one
  };
  ::testing::internal::CaptureStderr();
  for (const std::string& bytes : garbage) {
    TestAgent agent(server);
    agent.send(bytes);
    std::string answer = agent.hear();
    if (answer.starts_with("no ")) answer = agent.hear();
    EXPECT_EQ(answer, "(closed)") << ::testing::PrintToString(bytes);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("an offer of 4294967295 bytes"));
  TestAgent beta(server);
  beta.offer(kBeta);
  EXPECT_EQ(beta.hear(), "ok");
}

TEST_F(AgentServerTest, ConnectionsBeyondTheLimitWaitAndDisturbNobody) {
  AgentServer& server = open({.max_pending = 2, .handshake_timeout = milliseconds(100)});
  std::vector<std::unique_ptr<TestAgent>> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(std::make_unique<TestAgent>(server));
  TestAgent beta(server);
  beta.offer(kBeta);
  EXPECT_EQ(beta.hear(), "ok") << "those before it were sent away in time";
}

TEST_F(AgentServerTest, ARankOfAnAgentIsAProcessLikeOthers) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  ASSERT_EQ(beta.hear(), "ok");
  std::vector<std::string> lines;
  const LineTaker take = [&](std::string_view line) { lines.emplace_back(line); };
  for (int round = 0; round < 2; ++round) {
    lines.clear();
    auto process = server.start("beta", {.number = 3, .backend = "tcp"});
    EXPECT_EQ(beta.hear(), format_order({.number = 3, .backend = "tcp"}));
    beta.send("hello\nwor");
    beta.send("ld\n");
    EXPECT_FALSE(process->reap(take));
    process->signal(SIGTERM, false);
    EXPECT_EQ(beta.hear(), "signal 15");
    beta.send(format_end({.exit_code = 143}) + "\n");
    std::optional<ProcessEnd> end;
    EXPECT_TRUE(becomes_true([&] { return (end = process->reap(take)).has_value(); }));
    EXPECT_EQ(end->exit_code, 143);
    EXPECT_FALSE(end->is_lost);
    EXPECT_FALSE(process->running());
    EXPECT_THAT(lines, ElementsAre("hello", "world"));
  }
}

TEST_F(AgentServerTest, ARankWhoseAgentGoesIsLost) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  ASSERT_EQ(beta.hear(), "ok");
  auto process = server.start("beta", {.number = 3, .backend = "tcp"});
  auto none = server.start("beta", {.number = 4, .backend = "tcp"});
  EXPECT_TRUE(none->reap([](std::string_view) {})->is_lost) << "the one place is taken";
  beta.close();
  std::optional<ProcessEnd> end;
  EXPECT_TRUE(
      becomes_true([&] { return (end = process->reap([](std::string_view) {})).has_value(); }));
  EXPECT_TRUE(end->is_lost);
  EXPECT_THAT(server.agents(), IsEmpty());
  EXPECT_TRUE(server.knows("beta"));
  const GroupOutcome outcome = outcome_of({.ranks = {{.rank = 3,
                                                      .host = "beta",
                                                      .exit_code = end->exit_code,
                                                      .has_lost_agent = end->is_lost}},
                                           .step = 7});
  EXPECT_EQ(outcome.cause, "rank 3 on beta: the agent there is gone after step 7");
  EXPECT_THAT(outcome.lost, ElementsAre(3));
  EXPECT_THAT(outcome.gone, IsEmpty()) << "ssh cannot bring it back";
}

TEST_F(AgentServerTest, ARankThatNobodyWatchesAnyMoreIsKilledAndItsPlaceFree) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  ASSERT_EQ(beta.hear(), "ok");
  server.start("beta", {.number = 3, .backend = "tcp"}).reset();
  EXPECT_EQ(beta.hear(), format_order({.number = 3, .backend = "tcp"}));
  EXPECT_EQ(beta.hear(), "signal 9");
  beta.send("last words\n" + format_end({.signal = 9}) + "\n");
  EXPECT_TRUE(becomes_true(
      [&] { return server.start("beta", {.number = 4, .backend = "tcp"})->running(); }));
}

TEST_F(AgentServerTest, WhoWantsToLeaveGetsNoOtherRank) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  ASSERT_EQ(beta.hear(), "ok");
  auto process = server.start("beta", {.number = 3, .backend = "tcp"});
  beta.hear();
  beta.send(std::string(kLeaveMark) + "\n");
  const auto none = [](std::string_view line) { FAIL() << line; };
  EXPECT_TRUE(becomes_true([&] {
    process->listen(none);
    return !server.leaving().empty();
  }));
  EXPECT_THAT(server.leaving(), ElementsAre(3));
  EXPECT_THAT(server.agents(), IsEmpty());
  server.end(3);
  EXPECT_EQ(beta.hear(), "signal 9");
  beta.send(format_end({.signal = 9}) + "\n");
  EXPECT_TRUE(becomes_true([&] { return process->reap(none).has_value(); }));
  EXPECT_FALSE(server.start("beta", {.number = 4, .backend = "tcp"})->reap(none)->exit_code == 0);
  server.bye(1, "all is lost");
  EXPECT_EQ(beta.hear(), "bye 1 all is lost");
}

TEST_F(AgentServerTest, LinesWithoutEndAreCut) {
  AgentServer& server = open();
  TestAgent beta(server);
  beta.offer(kBeta);
  ASSERT_EQ(beta.hear(), "ok");
  auto process = server.start("beta", {.number = 3, .backend = "tcp"});
  std::size_t longest = 0, total = 0;
  const LineTaker measure = [&](std::string_view line) {
    longest = std::max(longest, line.size());
    total += line.size();
  };
  constexpr std::size_t kBytes = std::size_t{1} << 20, kPiece = std::size_t{16} << 10;
  for (std::size_t sent = 0; sent < kBytes; sent += kPiece) {
    beta.send(std::string(kPiece, 'x'));
    process->listen(measure);
  }
  beta.send("\n");
  EXPECT_TRUE(becomes_true([&] {
    process->listen(measure);
    return total == kBytes;
  }));
  EXPECT_LE(longest, 2 * kLongestLine);
}

}  // namespace
}  // namespace atl::launch
