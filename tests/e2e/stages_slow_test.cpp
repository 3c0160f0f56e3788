// A hundred kills of stages while streams run: each stream has the text of an undisturbed run.

#include <random>

#include "stages_fixture.h"

namespace atl::e2e {
namespace {

TEST_F(Stages, AHundredKillsChangeNoStream) {
  const std::vector<std::string> texts = expected(6);
  std::vector<Running> stages;
  for (int i = 0; i < 3; ++i) stages.push_back(stage());
  Running server = serve({"--stages", list(stages)});
  Clients clients(server.port, texts);
  std::minstd_rand random(7);
  for (int kill = 0; kill < 100; ++kill) {
    kill_and_restart(stages[random() % stages.size()], server.port, clients);
    ASSERT_FALSE(HasFailure()) << "kill " << kill << "\n" << server.program->errors();
  }
  clients.stop();
  EXPECT_EQ(end(server), 0);
}

TEST_F(Stages, ASpareTakesThePlaceOfAStageThatDoesNotComeBack) {
  const std::vector<std::string> texts = expected(4);
  std::vector<Running> stages, spares;
  for (int i = 0; i < 2; ++i) stages.push_back(stage());
  for (int i = 0; i < 2; ++i) spares.push_back(stage());
  Running server = serve({"--stages", list(stages), "--spare", list(spares)});
  Clients clients(server.port, texts);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].program->send(SIGKILL);
    const std::string up =
        fmt::format("atoll_stage_up{{stage=\"127.0.0.1:{}\"}} 1", spares[i].port);
    EXPECT_TRUE(
        soon([&] { return http::ask(server.port, "GET /metrics").find(up) != std::string::npos; }));
    const int seen = clients.count();
    EXPECT_TRUE(soon([&] { return clients.count() >= seen + 4; }));
  }
  clients.stop();
  EXPECT_EQ(end(server), 0);
}

// Nothing is closed: a process that is stopped keeps its connections.
TEST_F(Stages, AStageThatHangsIsLostAndComesBack) {
  const std::vector<std::string> texts = expected(4);
  std::vector<Running> stages;
  for (int i = 0; i < 2; ++i) stages.push_back(stage());
  Running server = serve({"--stages", list(stages)});
  Clients clients(server.port, texts);
  for (Running& hanging : stages) {
    hanging.program->send(SIGSTOP);
    EXPECT_TRUE(soon([&] { return !is_healthy(server.port); }));
    hanging.program->send(SIGCONT);
    EXPECT_TRUE(soon([&] { return is_healthy(server.port); }));
    const int seen = clients.count();
    EXPECT_TRUE(soon([&] { return clients.count() >= seen + 4; }));
  }
  clients.stop();
  EXPECT_EQ(end(server), 0);
}

}  // namespace
}  // namespace atl::e2e
