// A model whose layers several machines have gives the bits of one process, also where a machine is
// lost on the way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "atoll/base/error.h"
#include "atoll/serve/stages/stages_testing.h"
#include "atoll/wire/session.h"
#include "atoll/wire/testing.h"

namespace atl::serve::stages {
namespace {

using ::testing::HasSubstr;
using namespace test;

constexpr std::uint64_t kRequests = 14;

class StagesOf : public ::testing::TestWithParam<const char*> {};

TEST_P(StagesOf, TwoAndFourStagesGiveTheBitsOfOneProcess) {
  const nn::ModelConfig config = config_of(GetParam());
  const std::vector<Answer> expected = expected_answers(config, kRequests);
  for (const std::size_t stages : {1U, 2U, 4U}) {
    Machines machines(config, stages);
    const auto generator = machines.generator();
    EXPECT_EQ(Clients(*generator, kRequests).answers(), expected) << stages << " stages";
    EXPECT_EQ(generator->stats().restarts, 0);
    EXPECT_EQ(generator->stats().blocks_in_use, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StagesOf, ::testing::Values("llama", "gpt2", "mistral", "mixtral"));

TEST(Stages, RoundedWeightsGiveTheBitsOfOneProcess) {
  const nn::ModelConfig config = config_of("llama");
  for (const auto& [name, weights] :
       {std::pair("bf16", Weights::kBf16), std::pair("int8", Weights::kInt8)}) {
    Machines machines(config, 2);
    machines.options.weights = name;
    EXPECT_EQ(Clients(*machines.generator(), kRequests).answers(),
              expected_answers(config, kRequests, weights))
        << name;
  }
}

TEST(Stages, GroupsInFlightChangeNoBit) {
  const nn::ModelConfig config = config_of("llama");
  const std::vector<Answer> expected = expected_answers(config, kRequests);
  for (const std::int64_t groups : {1, 3, 20}) {
    Machines machines(config, 2, 0, {.delay_ms = 3});
    machines.options.groups = groups;
    const auto generator = machines.generator();
    EXPECT_EQ(Clients(*generator, kRequests).answers(), expected) << groups << " groups";
  }
}

// So few blocks that requests lose theirs while others' steps are under way.
TEST(Stages, ShortMemoryChangesNoBit) {
  const nn::ModelConfig config = config_of("llama");
  Machines machines(config, 2, 0, {.delay_ms = 1});
  machines.options.groups = 3;
  machines.options.room.num_blocks = 12;
  const auto generator = machines.generator();
  EXPECT_EQ(Clients(*generator, kRequests).answers(), expected_answers(config, kRequests));
  EXPECT_GT(generator->stats().preempted, 0);
  EXPECT_EQ(generator->stats().blocks_in_use, 0);
}

TEST(Stages, ACancelledRequestEndsAndTheOthersGoOn) {
  const nn::ModelConfig config = config_of("llama");
  std::vector<Answer> expected = expected_answers(config, kRequests);
  Machines machines(config, 2, 0, {.delay_ms = 3});
  const auto generator = machines.generator();
  Clients clients(*generator, kRequests);
  clients[5].wait_for_tokens(2);
  generator->cancel(clients.number(5));
  std::vector<Answer> answers = clients.answers();
  EXPECT_EQ(answers[5].finish, Finish::kCancelled);
  EXPECT_LT(answers[5].tokens.size(), expected[5].tokens.size());
  answers[5] = expected[5] = {};
  EXPECT_EQ(answers, expected);
  EXPECT_EQ(generator->stats().blocks_in_use, 0);
}

TEST(Stages, AStageThatComesBackGoesOnWithTheSameTokens) {
  const nn::ModelConfig config = config_of("llama");
  const std::vector<Answer> expected = expected_answers(config, kRequests);
  for (std::size_t lost = 0; lost < 3; ++lost) {
    Machines machines(config, 3);
    const auto generator = machines.generator();
    Clients clients(*generator, kRequests);
    clients[3].wait_for_tokens(4);
    machines.all[lost]->kill();
    machines.all[lost]->restart(config);
    EXPECT_EQ(clients.answers(), expected) << "stage " << lost;
    EXPECT_GE(generator->stats().restarts, 1);
    EXPECT_EQ(generator->stats().failed, 0);
    EXPECT_GT(machines.all[lost]->service->num_steps(), 0);
  }
}

TEST(Stages, ABrokenConnectionIsMadeAgain) {
  const nn::ModelConfig config = config_of("llama");
  Machines machines(config, 3);
  const auto generator = machines.generator();
  Clients clients(*generator, kRequests);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    clients[stage].wait_for_tokens(2);
    machines.all[stage]->relay.cut();
  }
  EXPECT_EQ(clients.answers(), expected_answers(config, kRequests));
}

TEST(Stages, ASpareTakesThePlaceOfALostStage) {
  const nn::ModelConfig config = config_of("llama");
  const std::vector<Answer> expected = expected_answers(config, kRequests);
  Machines machines(config, 2, 1);
  const auto generator = machines.generator();
  Clients clients(*generator, kRequests);
  clients[3].wait_for_tokens(4);
  machines.all[1]->kill();
  EXPECT_EQ(clients.answers(), expected);
  EXPECT_EQ(generator->stats().stages.at(1).address, machines.all[2]->relay.address());
  EXPECT_GT(machines.all[2]->service->num_steps(), 0);
  // The one that was lost is a spare now.
  machines.all[1]->restart(config);
  Clients more(*generator, kRequests);
  more[3].wait_for_tokens(4);
  machines.all[2]->kill();
  EXPECT_EQ(more.answers(), expected);
  EXPECT_EQ(generator->stats().stages.at(1).address, machines.all[1]->relay.address());
}

// Nothing is reset here: only heartbeats can tell.
TEST(Stages, AMachineThatFallsSilentIsLost) {
  const nn::ModelConfig config = config_of("llama");
  Machines machines(config, 2, 1);
  machines.options.heartbeat_ms = 50;
  machines.options.timeout_ms = 1000;
  const auto generator = machines.generator();
  Clients clients(*generator, kRequests);
  clients[3].wait_for_tokens(4);
  machines.all[0]->relay.freeze();
  EXPECT_EQ(clients.answers(), expected_answers(config, kRequests));
  EXPECT_EQ(generator->stats().stages.at(0).address, machines.all[2]->relay.address());
}

TEST(Stages, StatusSaysWhichStageIsDown) {
  const nn::ModelConfig config = config_of("llama");
  Machines machines(config, 2);
  const auto generator = machines.generator();
  Clients(*generator, 3).answers();
  const std::vector<StageStatus> up = generator->stats().stages;
  EXPECT_TRUE(up.at(0).is_up && up.at(1).is_up);
  EXPECT_EQ(up[0].end_layer, 2);
  EXPECT_EQ(up[1].first_layer, 2);
  EXPECT_GT(up[1].step_seconds, 0);
  machines.all[1]->kill();
  std::vector<StageStatus> down;
  do {
    std::this_thread::yield();
    down = generator->stats().stages;
  } while (!down.at(0).is_up || down.at(1).is_up);
  EXPECT_NE(down[1].problem, "");
  EXPECT_EQ(down[1].address, machines.all[1]->relay.address());
}

std::string refusal_of(const PipelineOptions& options) {
  try {
    PipelineExecutor(options).wait_until_ready();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What stages say to a server with other options. They are new each time, because a stage notices
// only after a while that the server before has left.
template <typename Change>
std::string refusal_of_change(const nn::ModelConfig& config, const Change& change) {
  Machines machines(config, 2);
  change(machines.options);
  return refusal_of(machines.options);
}

TEST(Stages, WhatDoesNotFitIsRefusedByOneLine) {
  const nn::ModelConfig config = config_of("llama");
  const auto refused = [&](const auto& change) { return refusal_of_change(config, change); };
  EXPECT_THAT(refused([](PipelineOptions& options) { options.model = "another"; }),
              HasSubstr("another model (identity tiny)"));
  EXPECT_THAT(refused([](PipelineOptions& options) { options.room.max_positions = 1000; }),
              HasSubstr("layers or positions that the model has not"));
  EXPECT_THAT(refused([](PipelineOptions& options) { options.weights = "f3"; }), HasSubstr("f3"));
  EXPECT_THAT(refused([](PipelineOptions& options) { options.room.max_rows = 1 << 20; }),
              HasSubstr("--step-tokens"));

  Machines machines(config, 2);
  const auto generator = machines.generator();
  EXPECT_THAT(refusal_of(machines.options), HasSubstr("in use by another server"));
  EXPECT_EQ(Clients(*generator, 5).answers(), expected_answers(config, 5));
}

TEST(Stages, OverTlsBothSidesShowCertificates) {
  const nn::ModelConfig config = config_of("llama");
  const wire::test::Pki pki;
  Machines machines(config, 0);
  std::vector<std::unique_ptr<StageService>> services;
  for (int i = 0; i < 2; ++i) {
    StageOptions options = stage_options(config);
    options.identity = pki.identity("server");
    services.push_back(std::make_unique<StageService>(std::move(options)));
    machines.options.stages.push_back(services.back()->address());
  }
  machines.options.layers = split_evenly(config, 2);
  EXPECT_THAT(refusal_of(machines.options), HasSubstr("this side has no identity"));
  const wire::test::Pki strangers;
  machines.options.identity = strangers.identity("lyon");
  EXPECT_THAT(refusal_of(machines.options), HasSubstr("is not good"));
  machines.options.identity = pki.identity("lyon");
  EXPECT_EQ(Clients(*machines.generator(), 5).answers(), expected_answers(config, 5));
}

// A client that says what it wants to a stage.
class Raw {
 public:
  explicit Raw(const std::string& address)
      : session_({.address = address},
                 {.connected = [this] { add("connected"); },
                  .received = [this](const std::string& frame) { add(frame); },
                  .disconnected = [this](const std::string& why, bool) { add("lost: " + why); }}) {}

  std::string next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !heard_.empty(); });
    std::string first = heard_.front();
    heard_.pop_front();
    return first;
  }
  void send(const std::string& frame) { EXPECT_TRUE(session_.send(frame)); }

 private:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    heard_.push_back(line);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> heard_;
  wire::Session session_;
};

TEST(Stages, AnotherProtocolIsRefused) {
  StageService service(stage_options(config_of("llama")));
  Raw client(service.address());
  EXPECT_EQ(client.next(), "connected");
  Assignment assignment;
  assignment.protocol = 77;
  // Of another version only the first field is known.
  client.send(encode(Kind::kAssign, assignment) + "more");
  const std::string frame = client.next();
  ASSERT_EQ(kind_of(frame), Kind::kRefused);
  EXPECT_THAT(decode<Trouble>(frame).why, HasSubstr("the server version 77; install the same"));
}

TEST(Stages, DamagedMessagesEndTheSessionAndNothingElse) {
  const nn::ModelConfig config = config_of("llama");
  Machines machines(config, 2);
  const auto generator = machines.generator();
  const std::string good = encode(Kind::kAssign, Assignment{});
  for (const std::string& frame :
       {std::string("\xff"), std::string(1, char(Kind::kPong)), good.substr(0, good.size() - 3),
        std::string(1, char(Kind::kPing)), std::string(1, char(Kind::kHello)) + "x"}) {
    Raw client(machines.all[0]->listen);
    EXPECT_EQ(client.next(), "connected");
    client.send(frame);
    EXPECT_THAT(client.next(), HasSubstr("lost"));
  }
  // Steps of nobody's epoch, and such that are damaged.
  Raw client(machines.all[1]->listen);
  EXPECT_EQ(client.next(), "connected");
  client.send(encode(Kind::kStep, StepMessage{.epoch = 1}));
  client.send(std::string(1, char(Kind::kStep)) + "damaged");
  EXPECT_EQ(Clients(*generator, 5).answers(), expected_answers(config, 5));
  EXPECT_EQ(generator->stats().restarts, 0);
}

TEST(Stages, AStepThatIndexesBeyondTheModelIsRefused) {
  const nn::ModelConfig config = config_of("llama");
  const auto take = [&](const std::function<void(StepMessage&)>& change) {
    PieceMessage piece;
    piece.tokens = {1, 2};
    piece.blocks = {0};
    StepMessage step = {.pieces = {piece}};
    change(step);
    ReceivedStep(std::move(step), config, kRoom, config.vocab_size, false);
  };
  EXPECT_NO_THROW(take([](StepMessage&) {}));
  const std::vector<std::function<void(StepMessage&)>> changes = {
      [](StepMessage& s) { s.pieces.clear(); },
      [](StepMessage& s) { s.pieces[0].tokens.clear(); },
      [](StepMessage& s) { s.pieces[0].tokens[0] = -1; },
      [](StepMessage& s) { s.pieces[0].tokens[1] = 61; },
      [](StepMessage& s) { s.pieces[0].tokens.resize(33, 1); },
      [](StepMessage& s) { s.pieces[0].first_position = 159; },
      [](StepMessage& s) { s.pieces[0].first_position = -1; },
      [](StepMessage& s) { s.pieces[0].first_position = 15; },
      [](StepMessage& s) { s.pieces[0].blocks[0] = 80; },
      [](StepMessage& s) { s.pieces[0].blocks[0] = -1; },
      [](StepMessage& s) {
        s.pieces[0].targets = {1, 2, 3};
      },
      [](StepMessage& s) { s.pieces[0].targets = {61}; },
      [](StepMessage& s) { s.pieces[0].first_drawn = 2; },
      [](StepMessage& s) { s.pieces[0].bias_tokens = {1}; },
      [](StepMessage& s) { s.pieces[0].counts = {1}; },
      [](StepMessage& s) {
        s.pieces[0].allowed = {1, 2};
      },
      [](StepMessage& s) { s.pieces[0].wanted = static_cast<StepModel::Wanted>(9); },
      [](StepMessage& s) { s.hidden = {1}; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    EXPECT_THROW(take(changes[i]), Error) << "change " << i;
  }
}

TEST(LayerSplit, SharesOfBytesAreEven) {
  nn::ModelConfig config = config_of("llama", 7);
  for (std::size_t stages = 1; stages <= 7; ++stages) {
    const std::vector<StepLayers> split = split_evenly(config, stages);
    ASSERT_EQ(split.size(), stages);
    EXPECT_EQ(split.front().first, 0);
    EXPECT_EQ(split.back().end, 7);
    for (std::size_t i = 1; i < stages; ++i) EXPECT_EQ(split[i].first, split[i - 1].end);
  }
  EXPECT_THROW(split_evenly(config, 8), Error);
  // A vocabulary of the weight of four layers at both ends.
  const LayerBytes small = layer_bytes(config);
  config.vocab_size = static_cast<std::int64_t>(4 * small.layers[0] / 4 / config.hidden_size);
  const std::vector<StepLayers> split = split_evenly(config, 3);
  EXPECT_EQ(split[0].end, 1);
  EXPECT_EQ(split[2].first, 6);
  const LayerBytes bytes = layer_bytes(config);
  EXPECT_EQ(stage_bytes(bytes, split[0]), bytes.embedding + bytes.layers[0]);
  EXPECT_EQ(stage_bytes(bytes, split[2]), bytes.head + bytes.layers[6]);
}

TEST(LayerSplit, RangesAreReadOrRefused) {
  const nn::ModelConfig config = config_of("llama", 7);
  const std::vector<StepLayers> split = parse_layers("0-2,3,4-6", config, 3);
  EXPECT_EQ(split[0].end, 3);
  EXPECT_EQ(split[1].first, 3);
  EXPECT_EQ(split[1].end, 4);
  EXPECT_EQ(split[2].end, 7);
  for (const char* text : {"", "0-6", "0-2,4-6", "0-3,3-6", "0-2,3-5", "0-2,3-7", "0-2,3-", "a,b",
                           "0-2,3-6,", "1-2,3-6", "2-0,1-6", "-1-2,3-6", "0-2 ,3-6"}) {
    EXPECT_THROW(parse_layers(text, config, 2), Error) << text;
  }
}

TEST(Groups, FillThePipe) {
  EXPECT_EQ(groups_for({0, 0}, 0), 2);           // nothing is known yet
  EXPECT_EQ(groups_for({0.01, 0.01}, 0), 2);     // both busy
  EXPECT_EQ(groups_for({0.01, 0.01}, 0.1), 12);  // ten more are on their way
  EXPECT_EQ(groups_for({0.03, 0.01}, 0), 2);
  EXPECT_EQ(groups_for({0.01}, 0), 1);
  EXPECT_EQ(groups_for({0.001}, 10), 64);
}

}  // namespace
}  // namespace atl::serve::stages
