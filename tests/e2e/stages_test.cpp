// `atoll serve --stages`: the same texts as one process, also where stages are killed; what is
// refused.

#include "stages_fixture.h"

namespace atl::e2e {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(Stages, TheSameStreamsAsOneProcessAlsoWhereAStageIsKilled) {
  const std::vector<std::string> texts = expected(4);
  EXPECT_EQ(texts[3].size(), 93U) << texts[3];
  std::vector<Running> stages;
  for (int i = 0; i < 2; ++i) stages.push_back(stage());
  Running server = serve({"--stages", list(stages), "--layers=0-2,3"});
  for (int seed = 0; seed < 4; ++seed) EXPECT_EQ(stream(server.port, seed), texts[seed]);
  {
    Clients clients(server.port, texts);
    kill_and_restart(stages[0], server.port, clients);
    kill_and_restart(stages[1], server.port, clients);
    clients.stop();
  }
  const std::string metrics = http::body_of(http::ask(server.port, "GET /metrics"));
  EXPECT_THAT(
      metrics,
      HasSubstr("atoll_stage_up{stage=\"127.0.0.1:" + std::to_string(stages[1].port) + "\"} 1"));
  EXPECT_THAT(metrics, ContainsRegex("atoll_stage_restarts_total [2-9]"));

  stages[1].program->send(SIGKILL);
  // Stage 0 may tell of it first, and is given its layers anew before stage 1 is missed.
  const std::string down =
      fmt::format("stage 127.0.0.1:{} (layers 3 to 3) is down", stages[1].port);
  std::string health;
  EXPECT_TRUE(soon([&] {
    health = http::ask(server.port, "GET /health");
    return health.find(down) != std::string::npos;
  })) << health;
  EXPECT_THAT(health, HasSubstr(" 503 "));
  EXPECT_EQ(end(server), 0);
  EXPECT_EQ(end(stages[0]), 0);
}

TEST_F(Stages, WhatIsWrongIsRefusedByOneLine) {
  std::vector<Running> stages;
  stages.push_back(stage());
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", path("run"), "--port=0"});
    const Finished finished = atoll(arguments);
    EXPECT_EQ(finished.exit_code, 2);
    return finished.err;
  };
  EXPECT_THAT(refusal({"--layers=0-3"}), HasSubstr("--layers: it is about machines"));
  EXPECT_THAT(refusal({"--groups=2"}), HasSubstr("--groups: it is about machines"));
  const std::string at = "--stages=" + list(stages);
  EXPECT_THAT(refusal({at, "--threads=1"}), HasSubstr("give it to `atoll stage`"));
  EXPECT_THAT(refusal({at, "--follow=1"}), HasSubstr("stages keep the layers"));
  EXPECT_THAT(refusal({at, "--layers=0-2"}),
              HasSubstr("the last layer is 2, and the model's is 3"));
  EXPECT_THAT(refusal({at, "--layers=x"}), HasSubstr("no range of layers"));
  EXPECT_THAT(refusal({"--stages=a,b,c,d,e"}), HasSubstr("the model has 4 layers"));
  EXPECT_THAT(refusal({"--stages=nowhere"}), HasSubstr("HOST:PORT"));
  EXPECT_THAT(refusal({"--stages=192.0.2.1:7500"}), HasSubstr("identity"));

  trained("other", {"--train.steps=5", "--data.new_tokenizer=char", "--train.context=128",
                    "--checkpoint.every=5", "--model.num_hidden_layers=4", "--run.seed=9"});
  const Finished other = atoll({"serve", path("other"), "--port=0", at});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("it has another model"));

  Running server = serve({at});
  EXPECT_THAT(refusal({at}), HasSubstr("in use by another server"));
  EXPECT_TRUE(is_healthy(server.port));
  EXPECT_EQ(end(server), 0);
  EXPECT_THAT(atoll({"stage", path("text.txt")}).err, HasSubstr("text.txt"));
  EXPECT_THAT(atoll({"stage", path("run"), "--listen=0.0.0.0:0"}).err, HasSubstr("certificate"));
}

}  // namespace
}  // namespace atl::e2e
