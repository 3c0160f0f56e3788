// Several islands by the program: they train one model, come, go, and come back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "islands_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Islands;
using e2e::Program;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(Islands, TwoTrainOneModel) {
  grace_s_ = "30";  // both are to be in every outer step, however busy the machine is
  const Finished finished = atoll(islanded("run", 2, 40));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(model(within("run", 1)), model(within("run", 2)));
  expect_outer_steps(within("run", 1), 4);
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Islands, TheLastExchangeIsInACheckpointThatWasDueBefore) {
  const Finished finished = atoll(islanded("run", 2, 20, {"--checkpoint.every=10"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(model(within("run", 1)), model(within("run", 2)));
}

TEST_F(Islands, AnIslandOfOneIsTrainedToo) {
  const Finished finished = atoll(islanded("run", 1, 20));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(values(within("run", 1), "outer_step"), ElementsAre(1, 2));
}

TEST_F(Islands, EveryAlgorithmAndCodecEndsWithOneModel) {
  const std::vector<std::vector<std::string>> kinds = {
      {"--outer.algorithm=streaming", "--outer.fragments=2", "--outer.overlap=2",
       "--outer.merge=0.5", "--outer.codec=e3m0"},
      {"--outer.algorithm=eager", "--outer.codec=int8"},
      {"--outer.codec=topk", "--outer.optimizer=sgd", "--outer.lr=1"},
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const std::string run = fmt::format("run-{}", i);
    const Finished finished = atoll(islanded(run, 3, 30, kinds[i]));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(model(within(run, 1)), model(within(run, 2))) << i;
    EXPECT_EQ(model(within(run, 1)), model(within(run, 3))) << i;
  }
}

// Nobody waits for others, and still all end with the same bits, every batch once.
TEST_F(Islands, AsynchronousOnesEndWithOneModel) {
  for (const char* momentum : {"delayed", "naive"}) {
    const std::string run = std::string("run-") + momentum;
    const Finished finished = atoll(
        ranked(run, {"--islands", "3", "--train.steps=40", "--outer.inner_steps=5",
                     "--outer.algorithm=async", std::string("--outer.async_momentum=") + momentum,
                     "--log.tensorboard=false", "--train.batch_size=2", "--train.micro_batch=2"}));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(model(within(run, 1)), model(within(run, 2)));
    EXPECT_EQ(model(within(run, 1)), model(within(run, 3)));
    const Finished shown = atoll({"runs", "show", path(run)});
    EXPECT_EQ(shown.exit_code, 0) << shown.out;
  }
}

// Pairs average what they have, and all do at the end; three are one exchange.
TEST_F(Islands, GossipingOnesEndWithOneModel) {
  grace_s_ = "30";  // all are to be in every outer step, however busy the machine is
  for (const int islands : {3, 4}) {
    const std::string run = fmt::format("run-{}", islands);
    const Finished finished = atoll(islanded(run, islands, 40, {"--outer.algorithm=gossip"}));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    for (int i = 2; i <= islands; ++i) EXPECT_EQ(model(within(run, 1)), model(within(run, i)));
    const std::vector<double> members = values(within(run, 1), "outer_members");
    ASSERT_GE(members.size(), 5U);
    EXPECT_EQ(members.front(), islands == 4 ? 2 : 3);
    EXPECT_EQ(members.back(), islands);
    EXPECT_GT(values(within(run, 1), "outer_spread").at(1), 0) << "they have states of their own";
    const Finished shown = atoll({"runs", "show", path(run), "--outer-steps"});
    EXPECT_EQ(shown.exit_code, 0) << shown.out;
    EXPECT_THAT(shown.out, HasSubstr(islands == 4 ? "50.0% /2" : "33.3% /1"));
  }
  const Finished coarse =
      atoll(islanded("other", 2, 40, {"--outer.algorithm=gossip", "--outer.codec=int8"}));
  EXPECT_EQ(coarse.exit_code, 2);
  EXPECT_THAT(coarse.err, HasSubstr("needs outer.codec f32"));
}

// The budget makes the codec coarser; the ledger says why, and its audit asks the policy again.
TEST_F(Islands, APolicyChangesWhatIsExchangedAndTheLedgerSaysWhy) {
  grace_s_ = "30";  // all are to be in every outer step, however busy the machine is
  const Finished finished = atoll(islanded(
      "run", 3, 120, {"--outer.policy=budget", "--outer.round_mb=0.1", "--outer.codec=f32"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(model(within("run", 1)), model(within("run", 2)));
  EXPECT_EQ(model(within("run", 1)), model(within("run", 3)));
  const Finished shown = atoll({"runs", "show", path("run"), "--outer-steps", "--json"});
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr("\"predicted_seconds\""));
  const Finished explained = atoll({"runs", "explain", path("run")});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, AllOf(HasSubstr("policy      budget, from H 10 f32"),
                                   HasSubstr("because of the budget"), HasSubstr("predictions")));
}

TEST_F(Islands, ABudgetThatNoSettingKeepsIsRefusedBeforeItBegins) {
  const Finished finished =
      atoll(islanded("run", 2, 20, {"--outer.policy=budget", "--outer.round_mb=0.0001"}));
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("no setting keeps the budget"));
  const Finished wrong = atoll(islanded(
      "other", 2, 20,
      {"--outer.policy=auto", "--outer.min_inner_steps=40", "--outer.max_inner_steps=20"}));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("the least must not be above the most"));
  const Finished unknown = atoll(islanded("third", 2, 20, {"--outer.policy=often"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("outer.policy"));
}

// What was exchanged is in the f32 masters, bit for bit, and rounded in the weights.
TEST_F(Islands, OfBf16WeightsHaveOneModelAndOneSetOfMasters) {
  grace_s_ = "30";  // both are to be in every outer step, however busy the machine is
  const Finished finished = atoll(islanded("run", 2, 40, {"--train.dtype=bf16"}));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  const auto weights = model(within("run", 1));
  EXPECT_EQ(weights, model(within("run", 2)));
  const auto masters = tensors(within("run", 1), "optimizer", "master.");
  EXPECT_EQ(masters.size(), weights.size());
  EXPECT_EQ(masters, tensors(within("run", 2), "optimizer", "master."));
  expect_outer_steps(within("run", 1), 4);
  const Finished refused =
      atoll(islanded("other", 2, 40, {"--train.dtype=bf16", "--optim.masters=stochastic"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("set optim.masters=f32"));
}

TEST_F(Islands, OfBf16WeightsWhoseRanksShareThemTrainAsOthersDo) {
  Program coordinator({"coordinator", "--dir", path("ledger"), "--listen", kAnywhere});
  const std::string place = address_of(coordinator);
  const auto of_ranks = [&](const std::string& run, const std::string& name,
                            std::vector<std::string> more) {
    more.insert(more.end(),
                {"--island.coordinator=" + place, "--island.name=" + name, "--outer.islands=2",
                 "--outer.inner_steps=10", "--train.dtype=bf16", "--log.tensorboard=false"});
    return ranked(run, more);
  };
  Program alone(of_ranks("run-a", "lyon", {}));
  Program of_two(of_ranks("run-b", "turin", {"-n", "2", "--backend=threads", "--dp.zero=3"}));
  for (Program* island : {&of_two, &alone}) {
    const Finished finished = island->wait();
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
  }
  EXPECT_EQ(coordinator.wait().exit_code, 0);
  EXPECT_EQ(model("run-a"), model("run-b"));
  EXPECT_EQ(tensors("run-a", "optimizer", "master."), tensors("run-b", "optimizer", "master."));
  expect_outer_steps("run-a", 4);
}

TEST_F(Islands, ThatOnlyCallOutGoThroughTheCoordinator) {
  grace_s_ = "30";  // both are to be in every outer step, however busy the machine is
  Program coordinator({"coordinator", "--dir", path("ledger"), "--listen", kAnywhere});
  const std::string place = address_of(coordinator);
  Program first(joining("run-a", "lyon", place, {"--outer.islands=2", "--island.listen="}));
  Program second(joining("run-b", "turin", place, {"--outer.islands=2"}));
  const Finished one = first.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(second.wait().exit_code, 0);
  EXPECT_EQ(coordinator.wait().exit_code, 0);
  EXPECT_EQ(model("run-a"), model("run-b"));
  expect_outer_steps("run-a", 4);
}

TEST_F(Islands, TheFirstSaysThatItWaitsForOthers) {
  Program coordinator({"coordinator", "--dir", path("ledger"), "--listen", kAnywhere});
  const std::string place = address_of(coordinator);
  Program first(joining("run-a", "lyon", place, {"--outer.islands=2", "--train.steps=20"}));
  const std::string words = "1 of 2 islands are there; training begins with all of them";
  EXPECT_TRUE(soon([&] { return first.errors().find(words) != std::string::npos; }));
  Program second(joining("run-b", "turin", place, {"--outer.islands=2", "--train.steps=20"}));
  const Finished one = first.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.err.find(words), one.err.rfind(words)) << "said once";
  const Finished other = second.wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, Not(HasSubstr("islands are there")));
  const Finished finished = coordinator.wait();
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("training begins with 2 islands; 1 more wanted"));
}

TEST_F(Islands, OneWithOtherSettingsIsRefused) {
  Program coordinator({"coordinator", "--dir", path("ledger"), "--listen", kAnywhere});
  const std::string place = address_of(coordinator);
  Program first(joining("run-a", "lyon", place, {"--outer.islands=2"}));
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(path("ledger/run.json")); }));
  const Finished second =
      atoll(joining("run-b", "turin", place, {"--outer.islands=2", "--optim.lr=0.5"}));
  EXPECT_EQ(second.exit_code, 2) << second.err;
  EXPECT_THAT(second.err, HasSubstr("error: the coordinator refused this island: turin is not of "
                                    "this run: optim.lr is 0.5 there and "));
}

TEST_F(Islands, OneThatKnowsMoreThanTheLedgerIsRefused) {
  ASSERT_EQ(atoll(islanded("run", 1, 20)).exit_code, 0);
  std::filesystem::remove_all(path("run/coordinator"));
  const Finished finished = atoll(islanded("run", 1, 40));
  EXPECT_EQ(finished.exit_code, 2) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("the checkpoint of island-1 is of outer step 2, and the "
                                      "ledger in "));
}

TEST_F(Islands, AFinishedRunIsFinishedAtOnce) {
  ASSERT_EQ(atoll(islanded("run", 2, 20)).exit_code, 0);
  const auto before = model(within("run", 2));
  const Finished finished = atoll(islanded("run", 2, 20));
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(model(within("run", 1)), before);
  EXPECT_EQ(model(within("run", 2)), before);
}

TEST_F(Islands, OuterSettingsWithoutIslandsAreRefused) {
  const Finished finished = atoll(ranked("run", {"--outer.codec=int8"}));
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(error_line(finished),
              AllOf(HasSubstr("outer.codec"), HasSubstr("is for a run of islands; add --islands")));
}

}  // namespace
}  // namespace atl
