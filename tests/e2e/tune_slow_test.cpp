// Studies of real runs: from nothing to a better recipe, killed and gone on with, forked.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <sstream>

#include "tune_fixture.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(Tune, FindsARecipeThatTrainsToWhatItsTrialShowed) {
  write_study("workers = 2",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n"
              "optim.kind = [\"adamw\", \"lion\"]\n"
              "optim.beta2 = {low = 0.9, high = 0.99, when = {optim.kind = \"adamw\"}}\n",
              "[budget]\ntrials = 6\n");
  const Finished tuned = tune();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr("best        trial"));
  const json study = shown();
  ASSERT_EQ(study["trials"].size(), 6u);
  double least = HUGE_VAL;
  for (const json& trial : study["trials"]) {
    EXPECT_EQ(trial["state"], "finished");
    EXPECT_EQ(trial["starts"], 1);
    EXPECT_EQ(trial["settings"].contains("optim.beta2"),
              trial["settings"]["optim.kind"] == "\"adamw\"");
    least = std::min(least, trial["measured"].back()["values"][0].get<double>());
  }
  const Finished best = atoll({"tune", "best", dir(), "--write", path("tuned.toml")});
  EXPECT_EQ(best.exit_code, 0) << best.err;
  EXPECT_EQ(atoll({"tune", "best", dir(), "--write", path("tuned.toml")}).exit_code, 2);
  const Finished trained =
      atoll({"train", path("tuned.toml"), "--run.dir=" + path("again"), "--log.format=json"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(read_file(root_.path / "again" / "metrics.jsonl"),
              HasSubstr(fmt::format("\"held_out_loss\":{}", least)));
  const Finished plot = atoll({"tune", "plot", dir()});
  EXPECT_EQ(plot.exit_code, 0) << plot.err;
  for (const char* name : {"importance.svg", "parallel.svg", "curves.svg"}) {
    EXPECT_THAT(read_file(fs::path(dir()) / "plots" / name), HasSubstr("</svg>"));
  }
  // Only the best keeps its checkpoints.
  int kept = 0;
  for (const fs::directory_entry& trial : fs::directory_iterator(fs::path(dir()) / "trials")) {
    kept += fs::exists(trial.path() / "run" / "checkpoints") ? 1 : 0;
  }
  EXPECT_EQ(kept, 1);
  // The same command again finds nothing left to do.
  EXPECT_EQ(tune().exit_code, 0);
  EXPECT_EQ(essence(shown()), essence(study));
}

// Tuner and trials are killed at moments that events give: a trial's first step line, or its end.
TEST_F(Tune, AKilledStudyIsThatOfOneThatWasNot) {
  write_study("scheduler = \"asha\"\nstartup = 3",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n"
              "train.dropout = {low = 0.0, high = 0.3}\n",
              "[budget]\ntrials = 6\n[rungs]\nmin_steps = 5\neta = 2\n");
  ASSERT_EQ(tune().exit_code, 0);
  const json whole = essence(shown());
  for (int kill = 0; kill < 4; ++kill) {
    Program program(command({"--study.dir=" + path("killed"), "--log.every=1"}));
    const fs::path trial = root_.path / "killed" / "trials" / fmt::format("{:04}", kill);
    EXPECT_TRUE(soon([&] {
      const fs::path log = trial / "run" / "metrics.jsonl";
      return fs::exists(log) && fs::file_size(log) > 0;
    }));
    program.send(SIGKILL);
    program.wait();
  }
  const Finished resumed = atoll({"tune", "resume", path("killed")});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(essence(shown(path("killed"))), whole);
}

TEST_F(Tune, ATrialThatIsKilledGoesOnAndASignalStopsThemAll) {
  std::vector<std::string> arguments = command({"--budget.trials=2", "--log.every=1"});
  std::replace(arguments.begin(), arguments.end(), std::string("--train.steps=20"),
               std::string("--train.steps=400"));
  Program program(arguments);
  const fs::path run = fs::path(dir()) / "trials" / "0000" / "run";
  ASSERT_TRUE(soon([&] { return fs::exists(run / "metrics.jsonl"); }));
  // The lock says which process the trial is.
  const std::string lock = read_file(run / "lock");
  const pid_t trial = std::stoi(lock.substr(lock.find(' ') + 1));
  ::kill(trial, SIGKILL);
  EXPECT_TRUE(
      soon([&] { return program.errors().find("it is started again") != std::string::npos; }));
  program.send(SIGTERM);
  const Finished stopped = program.wait();
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM);
  EXPECT_THAT(stopped.out, HasSubstr("atoll tune resume"));
  const Finished resumed = atoll({"tune", "resume", dir()});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const json study = shown();
  ASSERT_EQ(study["trials"].size(), 2u);
  for (const json& one : study["trials"]) EXPECT_EQ(one["state"], "finished");
}

TEST_F(Tune, AForkWithUnchangedSettingsIsItsParentToTheLastBit) {
  // A setting that changes no bit, and that is never drawn anew.
  write_study("scheduler = \"pbt\"\nkeep = \"all\"", "train.on_nonfinite = [\"stop\", \"skip\"]\n",
              "[pbt]\npopulation = 2\ninterval = 10\nresample = 0.0\n");
  const Finished tuned = tune();
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const json study = shown();
  ASSERT_EQ(study["trials"].size(), 3u);
  const json& child = study["trials"][2];
  const int parent = child["parent"];
  EXPECT_EQ(child["settings"], study["trials"][static_cast<std::size_t>(parent)]["settings"]);
  const auto run = [](int trial) { return fmt::format("study/trials/{:04}/run", trial); };
  EXPECT_EQ(tensors(run(2), 20), tensors(run(parent), 20));
  EXPECT_EQ(tensors(run(2), 10), tensors(run(parent), 10));
}

// Its donor goes on first, and keeps the newest of its checkpoints alone.
TEST_F(Tune, AForkBeginsFromACheckpointThatItsDonorDoesNotKeep) {
  write_study("scheduler = \"pbt\"", "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n",
              "[pbt]\npopulation = 2\ninterval = 10\n");
  const Finished tuned = tune({"--checkpoint.keep=1", "--checkpoint.every=5"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const json trials = shown()["trials"];
  ASSERT_EQ(trials.size(), 3u);
  EXPECT_EQ(trials[2]["state"], "finished");
  const fs::path donor =
      fs::path(dir()) / "trials" / fmt::format("{:04}", trials[2]["parent"].get<int>());
  EXPECT_FALSE(fs::exists(donor / "run" / "checkpoints" / "step-00000010"));
}

// Killed as soon as the study's directory is there, between every two files that it writes.
TEST_F(Tune, KilledInItsFirstMomentsIsResumed) {
  const fs::path study_dir = dir();
  const fs::path marks[] = {study_dir / "trials", study_dir / "recipe.toml",
                            study_dir / "study.toml", study_dir / "study.sqlite"};
  for (const fs::path& mark : marks) {
    fs::remove_all(study_dir);
    Program program(command({"--budget.trials=1"}));
    ASSERT_TRUE(soon([&] { return fs::exists(mark); })) << mark;
    program.send(SIGKILL);
    program.wait();
    const bool is_written =
        fs::exists(study_dir / "study.toml") || fs::exists(study_dir / "study.sqlite");
    const Finished resumed = atoll({"tune", "resume", dir()});
    EXPECT_EQ(resumed.exit_code, is_written ? 0 : 2) << mark << resumed.err;
    if (!is_written) {
      EXPECT_THAT(resumed.err, HasSubstr("atoll tune` command that began it"));
    }
    EXPECT_EQ(tune({"--budget.trials=1"}).exit_code, 0) << mark;
    EXPECT_EQ(shown()["trials"].size(), 1u);
  }
}

TEST_F(Tune, AForkTrainsWithTheSettingsThatItWasGiven) {
  write_study("scheduler = \"pbt\"\nkeep = \"all\"",
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n"
              "optim.weight_decay = {low = 1e-3, high = 0.3, scale = \"log\"}\n",
              "[pbt]\npopulation = 3\ninterval = 5\n");
  const Finished tuned = tune({"--log.every=1"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  int forks = 0;
  const json study = shown();
  for (const json& trial : study["trials"]) {
    if (!trial.contains("parent")) continue;
    ++forks;
    const fs::path run =
        fs::path(dir()) / "trials" / fmt::format("{:04}", trial["trial"].get<int>()) / "run";
    std::istringstream lines(read_file(run / "metrics.jsonl"));
    int steps = 0;
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (!record.contains("lr")) continue;
      ++steps;
      EXPECT_GT(record["step"], trial["fork_step"]);
      EXPECT_EQ(record["lr"].get<double>(),
                std::stod(trial["settings"]["optim.lr"].get<std::string>()));
    }
    EXPECT_GE(steps, 5);
  }
  EXPECT_EQ(forks, 3);  // of three the worst one, after 5, 10 and 15 steps
  const Finished plot = atoll({"tune", "plot", dir()});
  EXPECT_THAT(plot.out, HasSubstr("family.svg"));
}

TEST_F(Tune, WhatIsKnownIsTriedFirst) {
  ASSERT_EQ(tune({"--study.dir=" + path("earlier")}).exit_code, 0);
  const json earlier = shown(path("earlier"));
  const json* best = nullptr;
  for (const json& trial : earlier["trials"]) {
    const auto value = [](const json& one) {
      return one["measured"].back()["values"][0].get<double>();
    };
    if (best == nullptr || value(trial) < value(*best)) best = &trial;
  }
  write_study(fmt::format("prior = [\"recipe\", \"step-law\", \"{}\"]", path("earlier")),
              "optim.lr = {low = 1e-3, high = 3e-2, scale = \"log\"}\n"
              "train.batch_size = [2, 4, 8]\n",
              "[budget]\ntrials = 6\n");
  Program program(command({"--study.dir=" + path("later")}));
  ASSERT_TRUE(soon([&] { return fs::exists(root_.path / "later" / "starts.json"); }));
  program.send(SIGKILL);
  program.wait();
  // What is tried does not hang on what has become of the earlier study.
  fs::remove_all(path("earlier"));
  const Finished tuned = tune({"--study.dir=" + path("later")});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const json trials = shown(path("later"))["trials"];
  ASSERT_EQ(trials.size(), 6u);
  EXPECT_EQ(trials[0]["settings"]["optim.lr"], "0.01");
  EXPECT_EQ(trials[0]["settings"]["train.batch_size"], "4");
  EXPECT_EQ(trials[2]["settings"]["optim.lr"], (*best)["settings"]["optim.lr"]);

  for (const auto& [prior, words] : {std::pair("nothing", "is neither recipe, step-law nor"),
                                     std::pair("step-law", "the space has neither")}) {
    write_study(fmt::format("prior = [\"{}\"]", prior), "train.dropout = {low = 0.0, high = 0.3}\n",
                "[budget]\ntrials = 2\n");
    const Finished refused = tune({"--study.dir=" + path("refused-" + std::string(prior))});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(words));
  }
}

TEST_F(Tune, FailuresOfTrialsAreResultsOrEndTheStudyInOneLine) {
  // Heads that do not divide the width are refused; a learning rate of 1e30 diverges.
  write_study("searcher = \"grid\"",
              "model.num_attention_heads = [2, 3]\noptim.lr = [0.01, 1e30]\n", "");
  const Finished some = tune();
  ASSERT_EQ(some.exit_code, 0) << some.err;
  std::map<std::string, int> states;
  const json study = shown();
  for (const json& trial : study["trials"]) ++states[trial["state"]];
  EXPECT_EQ(states["refused"], 2);
  EXPECT_EQ(states["finished"] + states["diverged"], 2);
  EXPECT_GE(states["finished"], 1);

  const Finished none = tune({"--study.dir=" + path("none"), "--study.objective=accuracy"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("the objective accuracy never appears in what trial 0 has"));

  write_study("searcher = \"grid\"", "model.num_attention_heads = [3, 5, 7]\n", "");
  const Finished refused = tune({"--study.dir=" + path("refused")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("the first 3 trials were all refused; the last one:"));

  const Finished other = tune({"--study.dir=" + dir()});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("is the store of another study"));
}

}  // namespace
}  // namespace atl::e2e
