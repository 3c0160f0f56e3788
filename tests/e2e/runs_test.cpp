// What `atoll runs` and `atoll trace` make of real runs, and settings that act on evaluations.

#include <nlohmann/json.hpp>

#include "islands_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Islands;
using e2e::Program;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Runs : public Islands {
 protected:
  Finished runs(std::vector<std::string> more) const {
    more.insert(more.begin(), "runs");
    return atoll(more);
  }
  std::string shown(const std::vector<std::string>& more) const {
    const Finished finished = runs(more);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.out;
  }
  // A trace of a job that is under way; the ranks in it.
  std::vector<int> traced_ranks(const std::string& run) const {
    const Finished finished = atoll({"trace", path(run), "--steps", "3"});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    const std::string file = finished.out.substr(0, finished.out.find('\n'));
    std::set<int> ranks;
    int steps = 0;
    for (const auto& event : nlohmann::json::parse(read_file(file))) {
      ranks.insert(event.at("pid").get<int>());
      const auto name = event.at("name").get<std::string>();
      if (event.at("ph") == "X" && name.starts_with("step ") && event.at("pid") == 0) ++steps;
    }
    EXPECT_EQ(steps, 3) << file;
    return {ranks.begin(), ranks.end()};
  }
  static std::vector<std::string> endless(std::vector<std::string> more) {
    more.insert(more.end(), {fmt::format("--train.steps={}", e2e::kEndless), "--log.every=1",
                             "--log.tensorboard=false"});
    return more;
  }
};

TEST_F(Runs, AreListedComparedPlottedAndExported) {
  trained("a", {"--train.steps=30", "--log.every=5"});
  trained("b", {"--train.steps=20", "--log.every=5", "--optim.lr=0.003"});
  EXPECT_THAT(shown({"list", root_.path.string(), "--sort", "name"}),
              AllOf(HasSubstr("finished"), HasSubstr("30/30"), HasSubstr("20/20")));
  EXPECT_THAT(shown({"compare", path("a"), path("b")}),
              AllOf(HasSubstr("  optim.lr\n    A  0.01\n    B  0.003\n"),
                    HasSubstr("  train.steps\n    A  30\n    B  20\n"), HasSubstr("A loss"),
                    HasSubstr("B held_out_loss"), Not(HasSubstr("optim.clip"))));
  EXPECT_THAT(shown({"plot", path("a"), path("b")}), HasSubstr("step 30"));
  shown({"plot", path("a"), path("b"), "--svg", path("plot.svg"), "--x", "tokens"});
  EXPECT_THAT(read_file(path("plot.svg")), StartsWith("<svg "));
  shown({"export", path("a"), "--format", "csv", "--out", path("a.csv")});
  const std::string csv = read_file(path("a.csv"));
  EXPECT_THAT(csv, StartsWith("step,time,loss,grad_norm,lr,tokens"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), std::ssize(records("a")) + 1);
  shown({"export", path("a"), path("b"), "--format", "html", "--out", path("runs.html")});
  EXPECT_THAT(read_file(path("runs.html")),
              AllOf(HasSubstr("default-src 'none'"), HasSubstr("Settings that differ"),
                    Not(HasSubstr("<script")), Not(HasSubstr("src=")), Not(HasSubstr("href="))));
  EXPECT_EQ(runs({"compare", path("a")}).exit_code, 2);
  EXPECT_THAT(error_line(runs({"plot", path("a"), "--outer-steps"})),
              HasSubstr("--outer-steps belongs to `atoll runs show`"));
  EXPECT_THAT(error_line(runs({"plot", path("c")})), HasSubstr("there is no run"));
}

TEST_F(Runs, OfIslandsAreComparedAndPlottedTogether) {
  const Finished finished = atoll(islanded("run", 2, 20));
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(shown({"plot", path("run")}), AllOf(HasSubstr("island-1"), HasSubstr("island-2")));
  EXPECT_THAT(shown({"compare", path("run")}), HasSubstr("island.name"));
}

TEST_F(Runs, ThatTrainGiveATraceOfAllRanks) {
  const Finished before = atoll({"trace", path("none")});
  EXPECT_EQ(before.exit_code, 2);
  Program threads(ranked("threads", endless({"-n2"})));
  ASSERT_TRUE(took("threads", 3));
  EXPECT_THAT(traced_ranks("threads"), ElementsAre(0, 1));
  EXPECT_THAT(traced_ranks("threads"), ElementsAre(0, 1)) << "as often as one asks";
  threads.send(SIGTERM);
  threads.wait();
  const Finished after = atoll({"trace", path("threads")});
  EXPECT_THAT(error_line(after), HasSubstr("nothing trains in"));
}

TEST_F(Runs, UnderLaunchGiveATraceOfAllRanks) {
  Program agent(launch("run", endless({"--min-ranks=1", "--max-ranks=2", "--backend=tcp"})));
  ASSERT_TRUE(took("run", 3)) << agent.errors();
  EXPECT_THAT(traced_ranks("run"), ElementsAre(0, 1));
  agent.send(SIGTERM);
  agent.wait();
}

TEST_F(Runs, KeepTheCheckpointsOfTheBestEvaluations) {
  // A learning rate that ends far too high: the first evaluations are the best.
  const std::vector<std::string> more = {"--train.steps=60",
                                         "--eval.every=10",
                                         "--checkpoint.every=20",
                                         "--checkpoint.keep=1",
                                         "--checkpoint.keep_best=2",
                                         "--optim.schedule=constant",
                                         "--optim.warmup_steps=30",
                                         "--optim.lr=2",
                                         "--optim.clip=0"};
  const Finished finished = trained("run", more);
  std::map<double, std::int64_t> by_loss;
  for (const metrics::Record& record : records("run")) {
    for (const auto& [name, value] : record.values) {
      if (name == "held_out_loss") by_loss.emplace(std::get<double>(value), record.step);
    }
  }
  ASSERT_EQ(by_loss.size(), 6u);
  std::set<std::int64_t> wanted = {by_loss.begin()->second, std::next(by_loss.begin())->second, 60};
  const std::vector<std::int64_t> kept = ckpt::checkpoint_steps(root_.path / "run/checkpoints");
  EXPECT_EQ(std::set<std::int64_t>(kept.begin(), kept.end()), wanted) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("the best held-out loss so far"));
  EXPECT_THAT(error_line(train("x", {"--checkpoint.keep_best=1", "--eval.every=0"})),
              HasSubstr("goes by evaluations"));
}

TEST_F(Runs, EndEarlyAndStayEnded) {
  const std::vector<std::string> more = {"--train.steps=400",      "--eval.every=10",
                                         "--train.early_stop=2",   "--optim.schedule=constant",
                                         "--optim.warmup_steps=0", "--optim.lr=3",
                                         "--optim.clip=0",         "--train.on_nonfinite=skip"};
  const Finished first = trained("run", more);
  EXPECT_THAT(first.err, HasSubstr("stopped early"));
  const std::int64_t last = records("run").back().step;
  EXPECT_LT(last, 400);
  const std::size_t count = records("run").size();
  const Finished again = trained("run", more);
  EXPECT_THAT(again.err, HasSubstr("stopped early"));
  EXPECT_EQ(records("run").size(), count) << "the same command does nothing more";
  std::vector<std::string> patient = more;
  patient[2] = "--train.early_stop=3";
  trained("run", patient);
  EXPECT_GT(records("run").back().step, last) << "more patience goes on";
  EXPECT_THAT(error_line(train("x", {"--train.early_stop=1", "--eval.every=5",
                                     "--island.coordinator=127.0.0.1:1", "--island.name=a"})),
              HasSubstr("islands end together"));
}

TEST_F(Runs, WriteSamplesAtEvaluations) {
  const std::vector<std::string> more = {"--train.steps=20", "--eval.every=10", "--eval.samples=2",
                                         "--eval.prompts=the sea,a ring", "--eval.sample_tokens=5"};
  const Finished finished = trained("run", more);
  EXPECT_THAT(finished.out, AllOf(HasSubstr("sample 1 at step 10: the sea"),
                                  HasSubstr("sample 4 at step 20: a ring")));
  const std::string file = read_file(root_.path / "run/samples.jsonl");
  EXPECT_EQ(std::count(file.begin(), file.end(), '\n'), 8);
  EXPECT_THAT(file, HasSubstr("\"prompt\":\"a ring\""));
  trained("run", more);
  EXPECT_EQ(read_file(root_.path / "run/samples.jsonl"), file) << "a run that had ended";
  // Ranks that share everything write the same: the checkpoint has it whole.
  const Finished ranks =
      trained("ranks", {"--train.steps=10", "--eval.every=10", "--eval.samples=1", "-n2",
                        "--parallel.tp=2", "--eval.sample_tokens=5", "--eval.prompts=the sea"});
  EXPECT_THAT(ranks.out, HasSubstr("sample 1 at step 10: the sea"));
  EXPECT_THAT(error_line(train("x", {"--eval.prompts=a"})), HasSubstr("eval.samples"));
}

}  // namespace
}  // namespace atl
