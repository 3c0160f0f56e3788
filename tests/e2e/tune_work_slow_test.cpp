// Trials that are leased to workers, as of other machines: each has a directory of its own.

#include <csignal>
#include <memory>
#include <set>

#include "tune_fixture.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

class TuneWork : public Tune {
 protected:
  // A tuner that trains nothing itself.
  std::vector<std::string> tuner(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = command(
        {"--study.workers=0", "--study.listen=" + address_, "--study.lease_s=2", "--log.every=1"});
    return with(std::move(arguments), more);
  }
  // Of two of one name the later one.
  static std::vector<std::string> with(std::vector<std::string> arguments,
                                       const std::vector<std::string>& more) {
    for (const std::string& one : more) {
      const std::string name = one.substr(0, one.find('=') + 1);
      std::erase_if(arguments, [&](const std::string& other) { return other.starts_with(name); });
      arguments.push_back(one);
    }
    return arguments;
  }
  static std::string address_of(const Program& tuner) {
    static const std::string kWords = "workers may call ";
    std::string address;
    soon([&] {
      const std::string said = tuner.errors();
      const std::size_t at = said.find(kWords);
      if (at == said.npos) return false;
      const std::size_t begin = at + kWords.size();
      const std::size_t end = said.find(": atoll tune work", begin);
      if (end == said.npos) return false;
      address = said.substr(begin, end - begin);
      return true;
    });
    return address;
  }
  std::vector<std::string> worker(const std::string& name, const std::string& address,
                                  const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"tune",  "work",        address,
                                          "--dir", path(name),    "--name",
                                          name,    "--threads=1", "--patience=60"};
    return with(std::move(arguments), more);
  }
  // Waits until a trial of that worker has written a record.
  bool trains(const std::string& name, int trial = -1) const {
    return soon([&] {
      const fs::path trials = root_.path / name / "trials";
      if (!fs::exists(trials)) return false;
      for (const fs::directory_entry& one : fs::directory_iterator(trials)) {
        if (trial >= 0 && one.path().filename() != fmt::format("{:04}", trial)) continue;
        const fs::path log = one.path() / "run" / "metrics.jsonl";
        if (fs::exists(log) && fs::file_size(log) > 0) return true;
      }
      return false;
    });
  }
  static void expect_finished(Program& program) {
    const Finished finished = program.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
  }

  std::string address_ = "127.0.0.1:0";
};

TEST_F(TuneWork, AStudyOfOneWorkerIsThatOfThisMachine) {
  write_study("scheduler = \"asha\"\nstartup = 3",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n"
              "train.dropout = {low = 0.0, high = 0.3}\n",
              "[budget]\ntrials = 6\n[rungs]\nmin_steps = 5\neta = 2\n");
  ASSERT_EQ(tune({"--study.dir=" + path("here")}).exit_code, 0);
  Program order(tuner());
  Program lyon(worker("lyon", address_of(order)));
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(lyon);
  EXPECT_THAT(tuned.out, HasSubstr("best        trial"));
  EXPECT_EQ(essence(shown()), essence(shown(path("here"))));
  // What the recipe names is read from where the worker keeps it.
  EXPECT_THAT(read_file(root_.path / "lyon" / "recipe.toml"), HasSubstr("lyon/inputs/0/text.txt"));
  EXPECT_TRUE(fs::exists(root_.path / "lyon" / "data"));
  // The trial that is best has its checkpoint here, and it can be used.
  const Finished best = atoll({"tune", "best", dir(), "--write", path("tuned.toml")});
  EXPECT_EQ(best.exit_code, 0) << best.err;
}

TEST_F(TuneWork, AForkOnAnotherMachineIsItsParentToTheLastBit) {
  write_study("scheduler = \"pbt\"\nkeep = \"all\"", "train.on_nonfinite = [\"stop\", \"skip\"]\n",
              "[pbt]\npopulation = 2\ninterval = 10\nresample = 0.0\n");
  Program order(tuner());
  const std::string place = address_of(order);
  Program lyon(worker("lyon", place));
  Program turin(worker("turin", place));
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(lyon);
  expect_finished(turin);
  const json study = shown();
  ASSERT_EQ(study["trials"].size(), 3u);
  const int parent = study["trials"][2]["parent"];
  const auto run = [](int trial) { return fmt::format("study/trials/{:04}/run", trial); };
  EXPECT_EQ(tensors(run(2), 20), tensors(run(parent), 20));
  EXPECT_EQ(tensors(run(2), 10), tensors(run(parent), 10));
}

TEST_F(TuneWork, WhatAKilledWorkerHadGoesToAnother) {
  write_study("searcher = \"quasi-random\"",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n", "[budget]\ntrials = 4\n");
  ASSERT_EQ(atoll(with(command(), {"--study.dir=" + path("here"), "--train.steps=200"})).exit_code,
            0);
  Program order(tuner({"--train.steps=200"}));
  const std::string place = address_of(order);
  Program lyon(worker("lyon", place));
  ASSERT_TRUE(trains("lyon"));
  Program turin(worker("turin", place));
  lyon.send(SIGKILL);
  lyon.wait();
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(turin);
  EXPECT_THAT(tuned.err, HasSubstr("lyon was not connected for 2 s"));
  EXPECT_EQ(essence(shown()), essence(shown(path("here"))));
}

TEST_F(TuneWork, AKilledTunerFindsTheTrialsWhereTheyAre) {
  write_study("searcher = \"quasi-random\"",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n", "[budget]\ntrials = 2\n");
  std::unique_ptr<Program> order =
      std::make_unique<Program>(tuner({"--train.steps=400", "--study.lease_s=60"}));
  const std::string place = address_of(*order);
  Program lyon(worker("lyon", place, {"--slots=2"}));
  ASSERT_TRUE(trains("lyon", 0));
  ASSERT_TRUE(trains("lyon", 1));
  order->send(SIGKILL);
  order->wait();
  address_ = place;
  order = std::make_unique<Program>(tuner({"--train.steps=400", "--study.lease_s=60"}));
  const Finished tuned = order->wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(lyon);
  EXPECT_THAT(tuned.err, HasSubstr("lyon still has trial 1"));
  for (const json& trial : trials_of(dir())) {
    EXPECT_EQ(trial["state"], "finished");
    EXPECT_EQ(trial["starts"], 1);
  }
}

TEST_F(TuneWork, WhoComesBackTooLateNoLongerCounts) {
  write_study("searcher = \"quasi-random\"",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n", "[budget]\ntrials = 1\n");
  Program order(tuner({"--train.steps=400", "--study.lease_s=0.5"}));
  const std::string place = address_of(order);
  Program lyon(worker("lyon", place));
  ASSERT_TRUE(trains("lyon"));
  lyon.send(SIGSTOP);  // its trial goes on, and ends while nobody looks
  EXPECT_TRUE(soon([&] { return order.errors().find("is due again") != std::string::npos; }));
  lyon.send(SIGCONT);
  EXPECT_TRUE(soon([&] {
    return lyon.errors().find("the trial is no longer leased to this worker") != std::string::npos;
  }));
  Program turin(worker("turin", place));
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(lyon);
  const json study = shown();
  ASSERT_EQ(study["trials"].size(), 1u);
  EXPECT_EQ(study["trials"][0]["measured"].size(), 1u);
  EXPECT_EQ(study["trials"][0]["starts"], 2);
}

TEST_F(TuneWork, AWorkerThatLeavesGivesItsTrialBackAtOnce) {
  Program order(tuner({"--train.steps=400", "--study.lease_s=3600", "--budget.trials=1"}));
  const std::string place = address_of(order);
  Program lyon(worker("lyon", place));
  ASSERT_TRUE(trains("lyon"));
  lyon.send(SIGTERM);
  EXPECT_EQ(lyon.wait().exit_code, 128 + SIGTERM);
  Program turin(worker("turin", place));
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr("lyon has left"));
  expect_finished(turin);
}

TEST_F(TuneWork, RefusalsAndDivergenceTravelToo) {
  write_study("searcher = \"grid\"",
              "model.num_attention_heads = [2, 3]\noptim.lr = [0.01, 1e30]\n", "");
  Program order(tuner());
  Program lyon(worker("lyon", address_of(order), {"--slots=2"}));
  const Finished tuned = order.wait();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  expect_finished(lyon);
  std::multiset<std::string> states;
  for (const json& trial : trials_of(dir())) states.insert(trial["state"].get<std::string>());
  EXPECT_EQ(states.count("refused"), 2u);
  EXPECT_EQ(states.count("finished"), 1u);
  EXPECT_EQ(states.count("diverged"), 1u);
}

TEST_F(TuneWork, WhoCannotTakePartIsToldWhy) {
  const Finished nobody = tune({"--study.workers=0"});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("study.workers is 0, and nobody else trains"));
  const Finished paths = tune({"--study.listen=127.0.0.1:0", "--study.secret=" + path("secret"),
                               "--study.identity=" + path("none")});
  EXPECT_EQ(paths.exit_code, 2);
  EXPECT_THAT(paths.err, HasSubstr("study.identity and study.secret are both set"));

  Program order(tuner({"--study.secret=" + path("secret")}));
  const std::string place = address_of(order);
  const Finished stranger = atoll(worker("stranger", place));
  EXPECT_EQ(stranger.exit_code, 2);
  EXPECT_THAT(stranger.err, HasSubstr("secret"));
  // The study's own directory is not a worker's, nor is that of another study.
  const std::string secret = "--secret=" + path("secret");
  const Finished same = atoll({"tune", "work", place, "--dir", dir(), secret});
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_THAT(same.err, HasSubstr("name another"));
  fs::create_directories(root_.path / "other");
  write_file(root_.path / "other" / "study.identity", "format 1\n");
  const Finished other = atoll(worker("other", place, {secret}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("is of another study"));
  Program lyon(worker("lyon", place, {secret}));
  EXPECT_EQ(order.wait().exit_code, 0);
  expect_finished(lyon);
  const Finished late = atoll(worker("lyon", place, {secret, "--patience=0.5"}));
  EXPECT_EQ(late.exit_code, 1);
  EXPECT_THAT(late.err, HasSubstr("no tuner at " + place));
}

TEST_F(Tune, TrialsHaveSeveralRanksOrIslands) {
  const Finished one = tune({"--study.dir=" + path("one"), "--budget.trials=2"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const Finished two = tune(
      {"--study.dir=" + path("two"), "--budget.trials=2", "--study.ranks=2", "--train.exact=true"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  for (const json& trial : trials_of(path("two"))) EXPECT_EQ(trial["state"], "finished");

  write_study("islands = 2\nsearcher = \"random\"",
              "outer.inner_steps = [2, 5]\nouter.lr = {low = 0.5, high = 1.0}\n",
              "[budget]\ntrials = 2\n");
  const Finished islands = tune({"--study.dir=" + path("islands")});
  ASSERT_EQ(islands.exit_code, 0) << islands.err;
  for (const json& trial : trials_of(path("islands"))) {
    EXPECT_EQ(trial["state"], "finished");
    EXPECT_GT(trial["measured"].back()["values"][0].get<double>(), 0);
  }
  write_study("", "outer.lr = {low = 0.5, high = 1.0}\n", "[budget]\ntrials = 2\n");
  const Finished refused = tune({"--study.dir=" + path("refused")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("study.islands"));
}

}  // namespace
}  // namespace atl::e2e
